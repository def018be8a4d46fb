// SPDX-License-Identifier: Apache-2.0

package cc

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
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// The receiver's ports: the agent's rule is for one of them, so that it has no part in the other's flows.
const (
	plainPort = 5201
	autoPort  = 5202
)

// world is one path with its two ends. It serves all runs on the path.
type world struct {
	e        *experiment
	cell     *cell
	lab      *lab.Lab
	agent    *labagent.Agent // of the automatic choice; its state stays from run to run. nil: not needed yet
	receiver *lab.Process
	diag     strings.Builder // of the receiver
	got      chan received   // closed when the receiver has ended
	stop     chan struct{}
}

// errOff is why the automatic choice cannot be had here.
type errOff struct{ why string }

func (e errOff) Error() string { return e.why }

// open lays the path; whatever it gives, close must follow.
func (w *world) open(ctx context.Context) (err error) {
	w.stop = make(chan struct{})
	o, err := w.e.labOptions(w.cell)
	if err != nil {
		return err
	}
	if w.lab, err = lab.New(o); err != nil {
		return fmt.Errorf("laying the path of %s: %w", w.cell, err)
	}
	for _, s := range []*lab.Site{w.lab.A, w.lab.B} {
		if err := s.Do(largeBuffers); err != nil {
			return fmt.Errorf("site %s: %w", s.Name, err)
		}
	}
	return w.startReceiver(ctx)
}

// largeBuffers lets windows grow as far as any of these paths needs. The settings are the network namespace's own.
func largeBuffers() error {
	for name, value := range map[string]string{"tcp_rmem": "4096 131072 33554432", "tcp_wmem": "4096 16384 33554432"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	return nil
}

func (w *world) startReceiver(ctx context.Context) error {
	site := w.lab.B
	cmd := site.Command(ctx, w.e.session.Binary, ReceiveCommand, site.Addr4.String(), strconv.Itoa(plainPort), strconv.Itoa(autoPort))
	cmd.Env, cmd.Stderr = child.Env(), &w.diag
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("starting the receiver: %w", err)
	}
	if w.receiver, err = site.Start(cmd); err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("the receiver ended at once: %w: %s", w.receiver.Wait(), strings.TrimSpace(w.diag.String()))
	}
	w.got = make(chan received)
	go w.listenTo(lines)
	return nil
}

func (w *world) listenTo(lines io.Reader) {
	defer close(w.got)
	for d := json.NewDecoder(lines); ; {
		var r received
		if d.Decode(&r) != nil {
			return
		}
		select {
		case w.got <- r:
		case <-w.stop:
			return
		}
	}
}

// close removes the path and all that runs on it.
func (w *world) close() error {
	if w.lab == nil {
		return nil
	}
	close(w.stop)
	var errs []error
	if w.agent != nil {
		errs = append(errs, w.agent.Stop())
	}
	return errors.Join(append(errs, w.lab.Close())...)
}

// startAgent starts the agent that chooses. For a path it is always the same one, so that it knows later what it has learned.
func (w *world) startAgent(ctx context.Context) error {
	if w.agent == nil {
		instance := fmt.Sprintf("bench-%d-%d", os.Getpid(), w.e.done)
		a, err := labagent.New(w.lab.A, w.e.session.Binary, instance, filepath.Join(w.e.dir, instance))
		if err != nil {
			return err
		}
		if err := a.Configure(autoConfig(w.e.plan.candidates, w.lab.B.Net4.String())...); err != nil {
			return err
		}
		w.agent = a
	}
	if len(w.e.plan.candidates) == 0 {
		return errOff{"--without leaves nothing to choose from"}
	}
	if err := w.agent.Start(); err != nil {
		return err
	}
	st, err := w.agent.WaitReady(ctx, false)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errOff{err.Error()}
	}
	for _, f := range st.Features {
		if f.Name == "rules" && !f.On {
			return errOff{"the agent has no rules in force: " + f.Detail}
		}
	}
	return nil
}

// autoConfig is the configuration of the agent that chooses.
func autoConfig(candidates []string, remote string) []string {
	return []string{
		"history: {memory: 64MiB}", // small machines run this too
		"auto: {candidates: [" + strings.Join(candidates, ", ") + "]}",
		"rules:",
		fmt.Sprintf("  - {name: bench, remote: %s, ports: [%d], congestion: auto}", remote, autoPort),
	}
}

// patience is how long a run may take before something hangs.
func (e *experiment) patience() time.Duration {
	if e.plan.duration > 0 {
		return e.plan.duration + 2*time.Minute
	}
	const leastRate = 50e3 / 8 // bytes per second
	return time.Duration(float64(e.bytes)/leastRate*float64(time.Second)) + 2*finishWait
}
