// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// How long the parts may take on a slow machine.
const (
	readyTimeout = 30 * time.Second
	pollEvery    = 50 * time.Millisecond
)

// program is what directories and instances of the demo are known by.
const program = "demo"

// world is everything the demo made, and so must remove.
type world struct {
	opts   Options
	file   file
	say    *progress
	dir    string // of keys, configurations, logs and what is fetched
	lab    *lab.Lab
	a, b   *site
	server *lab.Process
}

func (w *world) run(ctx context.Context) error {
	for _, dir := range labagent.RemoveStale(ctx, program, w.opts.Binary) {
		w.say.notef("removed %s, which a killed demo left", dir)
	}
	if err := w.build(); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	r, err := w.fetchAll(ctx)
	if err != nil {
		return err
	}
	if err := r.write(w.opts.Stdout, w.opts.JSON); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if !r.SHA256OK {
		return errors.New("what arrived is not the file: please report this with the table above")
	}
	if w.opts.Hold {
		w.hold(ctx)
	}
	return nil
}

// build makes the sites and writes down what their agents are to do.
func (w *world) build() (err error) {
	w.say.stepf("making two sites and a WAN of %s", describe(w.opts))
	if w.dir, err = labagent.MakeDir(program); err != nil {
		return err
	}
	if w.lab, err = lab.New(w.opts.labOptions()); err != nil {
		return fmt.Errorf("making the sites: %w", err)
	}
	if w.a, err = w.site(w.lab.A); err != nil {
		return err
	}
	if w.b, err = w.site(w.lab.B); err != nil {
		return err
	}
	congestion, history := bestCongestion(), max(64<<20, 4*w.file.size)
	window := windowFor(w.opts.Rate, w.opts.RTT)
	if err := w.a.configure(w.b, congestion, window, history); err != nil {
		return err
	}
	return w.b.configure(w.a, congestion, window, history)
}

func (w *world) site(s *lab.Site) (*site, error) {
	instance := fmt.Sprintf("%s-%d-%s", program, os.Getpid(), s.Name)
	agent, err := labagent.New(s, w.opts.Binary, instance, filepath.Join(w.dir, s.Name))
	return &site{s, agent}, err
}

func (w *world) start(ctx context.Context) error {
	w.say.stepf("starting an agent at each site and a web server at site b")
	if err := w.startServer(ctx); err != nil {
		return err
	}
	for _, s := range []*site{w.b, w.a} {
		if err := s.agent.Start(); err != nil {
			return err
		}
	}
	w.say.stepf("waiting for the agents to meet")
	if _, err := w.b.agent.WaitReady(ctx, false); err != nil {
		return err
	}
	_, err := w.a.agent.WaitReady(ctx, true)
	return err
}

// close removes the world. Agents get the time to undo what they did to the kernel; for one that does not end by itself
// cleanup does it.
func (w *world) close() error {
	w.say.close()
	var errs []error
	if w.lab != nil {
		for _, s := range []*site{w.a, w.b} {
			if s != nil && s.agent != nil {
				errs = append(errs, s.agent.Stop())
			}
		}
		errs = append(errs, w.lab.Close())
	}
	if w.dir == "" {
		return errors.Join(errs...)
	}
	if w.opts.KeepLogs {
		errs = append(errs, w.keepLogs())
	}
	if err := os.RemoveAll(w.dir); err != nil {
		errs = append(errs, fmt.Errorf("removing %s: %w", w.dir, err))
	}
	return errors.Join(errs...)
}

// keepLogs moves the logs to a directory of their own, for the rest holds keys.
func (w *world) keepLogs() error {
	to, err := os.MkdirTemp("", "trunkline-demo-logs-")
	if err != nil {
		return fmt.Errorf("keeping the logs: %w", err)
	}
	for name, from := range map[string]string{"agent-a.log": w.logOf(w.a), "agent-b.log": w.logOf(w.b), "server.log": w.serverLog()} {
		if err := os.Rename(from, filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("keeping the logs: %w", err)
		}
	}
	w.say.notef("the logs are in %s", to)
	return nil
}

func (w *world) logOf(s *site) string {
	if s == nil || s.agent == nil {
		return ""
	}
	return s.agent.Log()
}

// hold waits until the person has looked around.
func (w *world) hold(ctx context.Context) {
	fmt.Fprintf(w.opts.Stderr, "\nBoth sites stay until Ctrl-C. To enter one, in another terminal:\n")
	for _, s := range []*site{w.a, w.b} {
		pid := s.agent.PID()
		fmt.Fprintf(w.opts.Stderr, "  site %s (%s):  sudo sh -c 'echo $$ > %s/cgroup.procs; exec nsenter --net=/proc/%d/ns/net bash'\n",
			s.Name, s.Addr4, s.Cgroup, pid)
		fmt.Fprintf(w.opts.Stderr, "      its agent: trunkline status --config %s\n", s.agent.Config())
	}
	fmt.Fprintf(w.opts.Stderr, "  then at site a:  curl -o /dev/null http://%s/%s  (direct: port %d)\n", w.b.Addr4, fileName, directPort)
	<-ctx.Done()
}

// describe says what the WAN is like.
func describe(o Options) string {
	return fmt.Sprintf("%s, %v RTT, %.4g %% loss", formatRate(float64(o.Rate)), o.RTT, o.Loss*100)
}

func formatRate(bitsPerSecond float64) string {
	if bitsPerSecond == 0 {
		return "any rate"
	}
	return units.FormatRate(bitsPerSecond)
}
