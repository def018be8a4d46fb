// SPDX-License-Identifier: Apache-2.0

package window

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/vmtest/lab"
)

const (
	owner = "bench" // of reservations
	// activeWait is how long a reservation may take to be in force.
	activeWait = 30 * time.Second
)

// startAgents starts an agent at each end, and has both reserve the path where the mode says so.
func (w *world) startAgents(ctx context.Context) error {
	for _, s := range []*lab.Site{w.lab.A, w.lab.B} {
		a, err := w.newAgent(s)
		if err != nil {
			return err
		}
		if err := a.Start(); err != nil {
			return err
		}
		w.agents = append(w.agents, a)
	}
	for _, a := range w.agents {
		st, err := a.WaitReady(ctx, false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return errOff{err.Error()}
		}
		if err := lacks(st, "rules"); err != nil {
			return err
		}
		if !w.mode.reserved {
			continue
		}
		if err := w.reserve(ctx, a); err != nil {
			return a.Failure(err)
		}
	}
	return nil
}

// newAgent makes one with a rule for the other end. What an agent has learned of a path stays for the later runs on it, but for
// reservations, which are made anew.
func (w *world) newAgent(s *lab.Site) (*labagent.Agent, error) {
	instance := fmt.Sprintf("bench-%d-%d-%s-%s", os.Getpid(), w.cell.number, w.mode.name, s.Name)
	if w.mode.reserved {
		w.e.reserved++
		instance += fmt.Sprintf("-%d", w.e.reserved)
	}
	a, err := labagent.New(s, w.e.session.Binary, instance, filepath.Join(w.e.dir, instance))
	if err != nil {
		return nil, err
	}
	return a, a.Configure(agentConfig(w.mode, w.e.profile, w.other(s).Net4.String())...)
}

// agentConfig is what a person would write. The automatic windows have the congestion control of the six lines, so that the
// windows are what is compared.
func agentConfig(m *mode, profile, remote string) []string {
	lines := []string{"history: {memory: 64MiB}"} // small machines run this too
	if m.reserved {
		return append(lines, "reservations:", "  owners: [{name: "+owner+", users: [root]}]", "rules:",
			"  - {name: bench, remote: "+remote+", window: reserved}")
	}
	rule := "  - {name: bench, remote: " + remote + ", window: auto"
	if profile != "" {
		rule += ", congestion: " + profile
	}
	return append(lines, "rules:", rule+"}")
}

// lacks says why a feature of an agent is off.
func lacks(st control.Status, name string) error {
	for _, f := range st.Features {
		if f.Name == name && !f.On {
			return errOff{fmt.Sprintf("the agent's %s are off: %s", name, f.Detail)}
		}
	}
	return nil
}

// reserve asks an agent for the whole path, and waits until it is in force.
func (w *world) reserve(ctx context.Context, a *labagent.Agent) error {
	ctx, cancel := context.WithTimeoutCause(ctx, activeWait, errors.New("the reservation is not in force"))
	defer cancel()
	r, err := a.Control().Reserve(ctx, reserve.Request{
		Owner: owner, Remote: []string{w.other(a.Site).Net4.String()}, Rate: fmt.Sprintf("%dbit", w.cell.rate), For: "2h", RTT: w.cell.rtt.String(),
	})
	if err != nil {
		return fmt.Errorf("reserving the path: %w", err)
	}
	for r.State != reserve.Active {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: it is %s", context.Cause(ctx), r.State)
		case <-time.After(20 * time.Millisecond):
		}
		if r, err = a.Control().Reservation(ctx, r.ID); err != nil {
			return fmt.Errorf("asking for the reservation: %w", err)
		}
	}
	st, err := a.Control().Status(ctx)
	if err != nil {
		return fmt.Errorf("asking for the status: %w", err)
	}
	return lacks(st, "window")
}

// other is the site at the other end.
func (w *world) other(s *lab.Site) *lab.Site {
	if s == w.lab.A {
		return w.lab.B
	}
	return w.lab.A
}
