// SPDX-License-Identifier: Apache-2.0

package window

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
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// port is the receiver's.
const port = 5201

// patience is what a run may take beyond its time before something hangs.
const patience = 2 * time.Minute

// world is a path with its two ends, as a mode has them. Every run has one of its own: nothing of an earlier one is on it.
type world struct {
	e      *experiment
	cell   *cell
	mode   *mode
	lab    *lab.Lab
	agents []*labagent.Agent
	noFq   bool
}

// measure makes one run.
func (e *experiment) measure(ctx context.Context, c *cell, m *mode, run int) (r row, bins []uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.duration()+patience, errors.New("it hangs"))
	defer cancel()
	w := &world{e: e, cell: c, mode: m}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx); err != nil {
		return r, nil, err
	}
	if w.noFq {
		e.note("this kernel has no fq: under the six lines TCP paces by itself")
	}
	s, got, err := w.transfer(ctx)
	if err == nil {
		err = w.lab.Link.Err()
	}
	for _, a := range w.agents {
		if err == nil {
			err = a.Alive()
		}
	}
	if err != nil {
		return r, nil, err
	}
	return w.result(s, got, run)
}

// open lays the path and makes the ends what the mode says; whatever it gives, close must follow.
func (w *world) open(ctx context.Context) (err error) {
	if w.mode.room() {
		if err := w.e.maxima.raise(w.cell.maximum()); err != nil {
			return err
		}
	}
	if w.lab, err = lab.New(w.e.labOptions(w.cell)); err != nil {
		return fmt.Errorf("laying the path of %s: %w", w.cell, err)
	}
	for _, s := range []*lab.Site{w.lab.A, w.lab.B} {
		if err := w.tune(s, w.other(s)); err != nil {
			return fmt.Errorf("site %s: %w", s.Name, err)
		}
	}
	if w.mode.agents {
		return w.startAgents(ctx)
	}
	return nil
}

// close removes the path and all that runs on it.
func (w *world) close() error {
	var errs []error
	for _, a := range w.agents {
		errs = append(errs, a.Stop())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	return errors.Join(append(errs, w.e.maxima.lower())...)
}

// late is by how much the emulator missed its times at worst.
func (w *world) late() time.Duration {
	return max(w.lab.Link.AB.Stats().LateMax, w.lab.Link.BA.Stats().LateMax)
}

// transfer sends once, until the time is over or the emulator was too late for the run to say anything.
func (w *world) transfer(ctx context.Context) (s sent, got received, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := order{Address: w.lab.B.Addr4, Port: port, Streams: w.cell.streams, Time: w.e.duration(), Congestion: w.congestion()}
	if w.mode.buffers {
		o.BufferBytes = w.cell.bdp() / w.cell.streams
	}
	receiver, err := w.start(ctx, w.lab.B, ReceiveCommand, o)
	if err != nil {
		return s, got, err
	}
	sender, err := w.start(ctx, w.lab.A, SendCommand, o)
	if err != nil {
		return s, got, err
	}
	w.lab.Link.Restart(w.e.session.Seed)
	if _, err := io.WriteString(sender.in, "go\n"); err != nil {
		return s, got, fmt.Errorf("starting the sender: %w", err)
	}
	ended := make(chan error, 2)
	go func() { ended <- receiver.result(&got) }()
	go func() { ended <- sender.result(&s) }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for left := 2; left > 0; {
		select {
		case err := <-ended:
			if err != nil {
				return sent{}, received{}, errors.Join(context.Cause(ctx), err)
			}
			left--
		case <-look.C:
			if w.late() > w.cell.queueTime() {
				return sent{}, received{}, w.abandon(cancel, ended, left)
			}
		}
	}
	if w.late() > w.cell.queueTime() {
		return s, got, errLate
	}
	return s, got, nil
}

// abandon ends both programs, and waits until nothing is written to what they were to tell.
func (w *world) abandon(cancel context.CancelCauseFunc, ended <-chan error, left int) error {
	cancel(errLate)
	for range left {
		<-ended
	}
	return errLate
}

// program is a sender or receiver.
type program struct {
	name    string
	process *lab.Process
	in      io.WriteCloser
	out     *bufio.Reader
	diag    strings.Builder
}

// start starts one, up to where it is ready.
func (w *world) start(ctx context.Context, s *lab.Site, name string, o order) (*program, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing an order: %w", err)
	}
	p := &program{name: name}
	cmd := s.Command(ctx, w.e.session.Binary, name, string(text))
	cmd.Env, cmd.Stderr = child.Env(), &p.diag
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if p.process, err = s.Start(cmd); err != nil {
		return nil, err
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		return nil, p.failure(err)
	}
	return p, nil
}

// result reads what it tells at the end.
func (p *program) result(into any) error {
	if err := json.NewDecoder(p.out).Decode(into); err != nil {
		return p.failure(err)
	}
	return nil
}

func (p *program) failure(err error) error {
	if ended := p.process.Wait(); ended != nil {
		err = ended
	}
	return fmt.Errorf("%s failed: %w: %s", p.name, err, strings.TrimPrefix(strings.TrimSpace(p.diag.String()), "trunkline: "))
}
