// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// besideID is the first number of the flows beside those that are measured.
const besideID = 1 << 16

// group is a sender process: flows of one algorithm.
type group struct {
	process *lab.Process
	in      io.WriteCloser
	out     *bufio.Reader
	diag    strings.Builder
	flows   int
	sent    []sent
}

// run sends once with an algorithm over the path, alone or beside another.
func (w *world) run(ctx context.Context, s *subject, run int) (r row, t *trace, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.e.patience(), errors.New("it hangs"))
	defer cancel()
	defer func() {
		if err != nil && context.Cause(ctx) != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
	}()
	seed := lossSeed(w.e.plan.seed, run)
	if s.auto() {
		if err := w.startAgent(ctx); err != nil {
			return r, nil, err
		}
		defer func() { err = errors.Join(err, w.agent.Stop()) }()
	}
	orders := w.orders(s)
	before := w.lab.Link.AB.Stats()
	groups, got, err := w.send(ctx, orders, seed)
	if err = errors.Join(err, w.lab.Link.Err()); err != nil {
		return r, nil, err
	}
	choices := ""
	if s.auto() {
		if err := w.agent.Alive(); err != nil {
			return r, nil, err
		}
		if choices, err = w.choices(ctx); err != nil {
			return r, nil, err
		}
	}
	f := flows{choices: choices, subject: s, cell: w.cell, run: run, seed: seed, got: got, measured: groups[0].sent,
		path: w.lab.Link.AB.Stats().Since(before)}
	if len(groups) > 1 {
		f.beside = groups[1].sent
	}
	return w.e.result(&f)
}

// orders are those for the senders: the measured one, and the one beside it.
func (w *world) orders(s *subject) []order {
	o := order{Address: w.lab.B.Addr4, Port: plainPort, Congestion: s.name, Flows: w.e.flowCount, Time: w.e.plan.duration,
		Bytes: w.e.bytes, Sample: w.e.sample}
	if s.auto() {
		o.Port = autoPort
	}
	orders := []order{o}
	if w.e.beside != "" {
		o.Port, o.Congestion, o.FirstID = plainPort, w.e.plan.beside, besideID
		orders = append(orders, o)
	}
	return orders
}

// send has all senders begin at the same time, changes the path under them, and collects what both ends saw.
func (w *world) send(ctx context.Context, orders []order, seed uint64) (groups []*group, got map[uint32]received, err error) {
	defer func() {
		for _, g := range groups {
			if err != nil {
				_ = g.process.Kill()
			}
			_ = g.process.Wait()
		}
	}()
	all := 0
	for i := range orders {
		g, err := w.sender(ctx, &orders[i])
		if g != nil {
			groups = append(groups, g)
			all += g.flows
		}
		if err != nil {
			return groups, nil, err
		}
	}
	w.reset(seed) // at the last moment: a measured link runs on, whether there is traffic or not
	for _, g := range groups {
		if _, err := io.WriteString(g.in, "go\n"); err != nil {
			return groups, nil, fmt.Errorf("starting a sender: %w", err)
		}
	}
	if _, err := groups[0].line("connecting"); err != nil {
		return groups, nil, err
	}
	stop := w.changeAlong()
	defer stop()
	collected := make(chan error, 1)
	got = map[uint32]received{}
	go func() { collected <- w.collect(ctx, all, got) }()
	for i, g := range groups {
		if err := g.result(i > 0); err != nil {
			return groups, nil, err
		}
	}
	return groups, got, <-collected
}

// sender starts one, up to where it waits for the start.
func (w *world) sender(ctx context.Context, o *order) (*group, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing an order: %w", err)
	}
	g := &group{flows: o.Flows}
	cmd := w.lab.A.Command(ctx, w.e.session.Binary, SendCommand, string(text))
	cmd.Env, cmd.Stderr = child.Env(), &g.diag
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("starting a sender: %w", err)
	}
	g.in, g.out = in, bufio.NewReader(out)
	if g.process, err = w.lab.A.Start(cmd); err != nil {
		return nil, err
	}
	_, err = g.line("starting")
	return g, err
}

// line reads one from the sender; doing says what it is at.
func (g *group) line(doing string) (string, error) {
	text, err := g.out.ReadString('\n')
	if err != nil {
		return "", g.failure(doing, err)
	}
	return text, nil
}

func (g *group) failure(doing string, err error) error {
	if ended := g.process.Wait(); ended != nil {
		err = ended
	}
	return fmt.Errorf("the sender failed at %s: %w: %s", doing, err, strings.TrimPrefix(strings.TrimSpace(g.diag.String()), "trunkline: "))
}

// result reads what the sender's flows did; skip says that its word of the connect has not been read.
func (g *group) result(skip bool) error {
	if skip {
		if _, err := g.line("connecting"); err != nil {
			return err
		}
	}
	if err := json.NewDecoder(g.out).Decode(&g.sent); err != nil {
		return g.failure("sending", err)
	}
	return nil
}

// collect waits for what the receiver says of every flow: then nothing of them is on the path any more, but for the last
// acknowledgements.
func (w *world) collect(ctx context.Context, all int, got map[uint32]received) error {
	for len(got) < all {
		select {
		case r, ok := <-w.got:
			switch {
			case !ok:
				return fmt.Errorf("the receiver has ended: %w: %s", w.receiver.Wait(), strings.TrimSpace(w.diag.String()))
			case r.Failure != "":
				return fmt.Errorf("the receiver failed: %s", r.Failure)
			}
			got[r.ID] = r
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-time.After(w.cell.delay + settleTime):
	case <-ctx.Done():
	}
	return ctx.Err()
}

const settleTime = 50 * time.Millisecond

// changeAlong changes the path at the times that --change names. The returned function ends it.
func (w *world) changeAlong() (stop func()) {
	start, quit, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for _, c := range w.e.plan.changes {
			select {
			case <-time.After(time.Until(start.Add(c.at))):
				w.apply(c)
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}
