// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/child"
	"github.com/trunkline/trunkline/cmd/internal/bench/wire"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// world is a host in one setting, and another host with the services: new for every run, so that no run finds what another
// left (ports that wait, warm caches of the engine, programs).
type world struct {
	setting  *setting
	session  *bench.Session
	lab      *lab.Lab
	dir      string
	near     *labagent.Agent // nil: none runs
	far      *labagent.Agent // nil: none runs
	softirqd []int
}

// errOff is why a setting cannot be had on this kernel.
type errOff struct{ why string }

func (e errOff) Error() string { return e.why }

// open brings everything up; whatever it gives, close must follow. Its error is an errOff where the kernel lacks what the
// setting needs.
func (w *world) open(ctx context.Context) (err error) {
	if w.lab, err = lab.New(lab.Options{NoIPv6: true}); err != nil {
		return fmt.Errorf("making the sites: %w", err)
	}
	if err := wire.Lay(w.lab.A, w.lab.B); err != nil {
		return err
	}
	if err := w.startServer(ctx); err != nil {
		return err
	}
	return w.startAgents(ctx)
}

func (w *world) startServer(ctx context.Context) error {
	cmd := w.lab.B.Command(ctx, w.session.Binary, ServeCommand, wire.Service.String())
	cmd.Env = child.Env()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	var diag strings.Builder
	cmd.Stderr = &diag
	p, err := w.lab.B.Start(cmd)
	if err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the server ended at once: %w: %s", p.Wait(), strings.TrimSpace(diag.String()))
	}
	return nil
}

// instances counts the agents that this process has started: a name must not come twice while an old one may still end.
var instances atomic.Int64

func (w *world) newAgent(s *lab.Site) (*labagent.Agent, error) {
	instance := fmt.Sprintf("bench-%d-%d-%s", os.Getpid(), instances.Add(1), s.Name)
	return labagent.New(s, w.session.Binary, instance, filepath.Join(w.dir, instance))
}

// startAgents starts what the setting has, the far end first, since the near one dials it.
func (w *world) startAgents(ctx context.Context) (err error) {
	if !w.setting.near {
		return nil
	}
	near, err := w.newAgent(w.lab.A)
	if err != nil {
		return err
	}
	peerKey := ""
	if w.setting.peer {
		far, err := w.newAgent(w.lab.B)
		if err != nil {
			return err
		}
		if err := errors.Join(far.Configure(farConfig(near.Key)...), far.Start()); err != nil {
			return err
		}
		w.far, peerKey = far, far.Key
		if _, err := far.WaitReady(ctx, false); err != nil {
			return err
		}
	}
	if err := errors.Join(near.Configure(w.setting.nearConfig(w.lab.A.CgroupPath, peerKey)...), near.Start()); err != nil {
		return err
	}
	w.near = near
	st, err := near.WaitReady(ctx, true)
	if err != nil {
		return err
	}
	return whyOff(st, w.setting.need)
}

func whyOff(st control.Status, feature string) error {
	for _, f := range st.Features {
		switch {
		case f.Name == feature && !f.On:
			return errOff{fmt.Sprintf("%s is off: %s", feature, f.Detail)}
		case f.Name == feature:
			return nil
		}
	}
	return errOff{fmt.Sprintf("the agent does not know %s", feature)}
}

// agents that run.
func (w *world) agents() (all []*labagent.Agent) {
	for _, a := range []*labagent.Agent{w.near, w.far} {
		if a != nil {
			all = append(all, a)
		}
	}
	return all
}

// steered is how many connections the engine has carried.
func (w *world) steered(ctx context.Context) (n uint64, err error) {
	if w.near == nil {
		return 0, nil
	}
	peers, err := w.near.Control().Peers(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking the agent: %w", err)
	}
	for _, p := range peers {
		n += p.FlowsOpened
	}
	return n, nil
}

// load runs a client for some time, and says what it did and what that cost everything in the lab.
func (w *world) load(ctx context.Context, kind string, duration time.Duration, parallel int, seed uint64) (l Load, spent cost, err error) {
	// Not even a machine that makes each of a few connections slowly takes longer, unless something hangs.
	ctx, cancel := context.WithTimeoutCause(ctx, 2*overtime*duration+time.Minute, errors.New("the load hangs"))
	defer cancel()
	cmd := w.lab.A.Command(ctx, w.session.Binary, LoadCommand, kind, wire.Service.String(), duration.String(), strconv.Itoa(parallel),
		strconv.FormatUint(seed, 10))
	cmd.Env = child.Env()
	var diag strings.Builder
	cmd.Stderr = &diag
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return l, spent, fmt.Errorf("starting the load: %w", err)
	}
	p, err := w.lab.A.Start(cmd)
	if err != nil {
		return l, spent, err
	}
	spent, err = w.drive(in, bufio.NewReader(out), &l, duration)
	if err != nil {
		_ = p.Kill()
	}
	if ended := p.Wait(); err != nil || ended != nil {
		err = errors.Join(context.Cause(ctx), err, ended)
		return l, spent, fmt.Errorf("%s, %s: %w: %s", w.setting.name, kind, err, strings.TrimSpace(diag.String()))
	}
	for _, a := range w.agents() {
		if err := a.Alive(); err != nil {
			return l, spent, err
		}
	}
	return l, spent, nil
}

// drive gives the start and takes the result. The costs are read while the client waits, before and after, so that its
// own start and end are not among them; but what agents do after the last connection (legs for the next ones) is.
func (w *world) drive(in io.Writer, out *bufio.Reader, l *Load, duration time.Duration) (spent cost, err error) {
	if _, err := out.ReadString('\n'); err != nil {
		return spent, fmt.Errorf("waiting for the client: %w", err)
	}
	before, err := w.cost()
	if err != nil {
		return spent, err
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		return spent, fmt.Errorf("starting the client: %w", err)
	}
	if err := json.NewDecoder(out).Decode(l); err != nil {
		return spent, fmt.Errorf("the client's result: %w", err)
	}
	time.Sleep(max(duration/8, 50*time.Millisecond))
	after, err := w.cost()
	return after.since(before), err
}

// close removes the world.
func (w *world) close() error {
	if w.lab == nil {
		return nil
	}
	var errs []error
	for _, a := range w.agents() {
		errs = append(errs, a.Stop())
	}
	return errors.Join(append(errs, w.lab.Close())...)
}
