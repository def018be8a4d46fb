// SPDX-License-Identifier: Apache-2.0

// Package labagent runs real agents at the sites of a lab: each is a process of its own with a configuration as a person
// would write it, and is stopped in the order that undoes its work.
package labagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/proxy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// How long the parts may take on a slow machine.
const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 45 * time.Second // flows in the engine have 30 s of it
	pollEvery    = 20 * time.Millisecond
)

// Agent is an agent at a site, or one that is yet to be started there.
type Agent struct {
	Site     *lab.Site
	Binary   string // the trunkline executable
	Instance string
	Dir      string // of its key, configuration, log, state and control socket
	Key      string // its fingerprint

	process *lab.Process
	ended   chan struct{} // closed when the process has ended
}

// New makes the directory and the key of an agent that is to run at a site.
func New(site *lab.Site, binary, instance, dir string) (*Agent, error) {
	a := &Agent{Site: site, Binary: binary, Instance: instance, Dir: dir}
	for _, d := range []string{dir, a.runDir(), a.stateDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("making a directory: %w", err)
		}
	}
	id, err := proxy.LoadOrCreateIdentity(a.keyPath())
	if err != nil {
		return nil, fmt.Errorf("making the key of site %s: %w", site.Name, err)
	}
	a.Key = id.Fingerprint()
	return a, nil
}

// Config is the path of the agent's configuration, Log that of its log.
func (a *Agent) Config() string   { return filepath.Join(a.Dir, ConfigName) }
func (a *Agent) Log() string      { return filepath.Join(a.Dir, "agent.log") }
func (a *Agent) runDir() string   { return filepath.Join(a.Dir, "run") }
func (a *Agent) stateDir() string { return filepath.Join(a.Dir, "state") }
func (a *Agent) keyPath() string  { return filepath.Join(a.Dir, "key") }

// ConfigName is what the configuration of each agent is called in its directory.
const ConfigName = "trunkline.yaml"

// Configure writes the configuration: what names this agent's place, then the lines given.
func (a *Agent) Configure(lines ...string) error {
	head := []string{
		"instance: " + a.Instance, "cgroup: " + a.Site.CgroupPath,
		"state_dir: " + a.stateDir(), "run_dir: " + a.runDir(), "key: " + a.keyPath(),
	}
	text := strings.Join(append(head, lines...), "\n") + "\n"
	if err := os.WriteFile(a.Config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing a configuration: %w", err)
	}
	return nil
}

// Start starts the agent; WaitReady says when it works.
func (a *Agent) Start() (err error) {
	if a.process, err = StartLogged(a.Site, a.Log(), a.Binary, "agent", "--config", a.Config()); err != nil {
		return err
	}
	a.ended = make(chan struct{})
	go func() {
		_ = a.process.Wait()
		close(a.ended)
	}()
	return nil
}

// PID is the process's; the agent has been started.
func (a *Agent) PID() int { return a.process.Process.Pid }

// Control asks the agent.
func (a *Agent) Control() *control.Client {
	return control.NewClient(filepath.Join(a.runDir(), "control.sock"), a.Instance)
}

// WaitReady waits until the agent answers and, if asked, until all its peers are up, and returns its status.
func (a *Agent) WaitReady(ctx context.Context, peersToo bool) (control.Status, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready in %v", readyTimeout))
	defer cancel()
	client, last := a.Control(), errors.New("no answer yet")
	for {
		st, err := client.Status(ctx)
		if err == nil && peersToo {
			err = peersDown(st)
		}
		if err == nil {
			return st, nil
		}
		last = err
		select {
		case <-a.ended:
			return st, a.Failure(errors.New("ended at once"))
		case <-ctx.Done():
			return st, a.Failure(fmt.Errorf("%w (%w)", context.Cause(ctx), last))
		case <-time.After(pollEvery):
		}
	}
}

func peersDown(st control.Status) error {
	for _, p := range st.Peers {
		if !p.Up {
			return fmt.Errorf("its peer is not up: %s", strings.TrimSpace(p.Name+" "+p.Reason+" "+p.Detail))
		}
	}
	return nil
}

// Alive is an error if the agent has ended.
func (a *Agent) Alive() error {
	select {
	case <-a.ended:
		return a.Failure(errors.New("has ended"))
	default:
		return nil
	}
}

// Failure wraps what is wrong with an agent in the end of its log.
func (a *Agent) Failure(err error) error {
	return fmt.Errorf("the agent at site %s: %w%s", a.Site.Name, err, Tail(a.Log()))
}

// Stop ends the agent, if it was started, and undoes what it could not undo itself.
func (a *Agent) Stop() error {
	if a.process == nil {
		return nil
	}
	_ = a.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(stopTimeout):
		_ = a.process.Kill()
		<-a.ended
	}
	if a.process.Wait() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if _, err := a.Site.Output(a.Site.Command(ctx, a.Binary, "cleanup", "--config", a.Config())); err != nil {
		return fmt.Errorf("cleaning up after the agent at site %s: %w", a.Site.Name, err)
	}
	return nil
}

// StartLogged starts a command at a site with its output in a file.
func StartLogged(s *lab.Site, logPath, name string, args ...string) (*lab.Process, error) {
	f, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer f.Close() // the child has its own descriptor
	// Not tied to a context: what is stopped in order undoes its work, what is killed does not.
	cmd := s.Command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	return s.Start(cmd)
}

// Tail gives the last lines of a log, set apart for an error message.
func Tail(path string) string {
	b, err := os.ReadFile(path)
	b = bytes.TrimSpace(b)
	if err != nil || len(b) == 0 {
		return " (its log is empty)"
	}
	lines := strings.Split(string(b), "\n")
	return "; the end of its log:\n    " + strings.Join(lines[max(0, len(lines)-12):], "\n    ")
}
