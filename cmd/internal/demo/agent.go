// SPDX-License-Identifier: Apache-2.0

package demo

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
	"github.com/trunkline/trunkline/vmtest/lab"
)

// startIn starts a command at a site with its output in a file.
func startIn(s *lab.Site, logPath, name string, args ...string) (*lab.Process, error) {
	f, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer f.Close() // the child has its own descriptor
	// Not tied to the context: what is stopped in order undoes its work, what is killed does not.
	cmd := s.Command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = f, f
	return s.Start(cmd)
}

func (w *world) startAgent(s *site) (err error) {
	if s.agent, err = startIn(s.Site, s.log(), w.opts.Binary, "agent", "--config", s.config()); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() {
		_ = s.agent.Wait()
		close(s.ended)
	}()
	return nil
}

func (s *site) control() *control.Client {
	return control.NewClient(filepath.Join(s.runDir(), "control.sock"), s.instance)
}

// waitReady waits until the site's agent answers and, if asked, until its peer is up.
func (w *world) waitReady(ctx context.Context, s *site, peerToo bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready in %v", readyTimeout))
	defer cancel()
	client := s.control()
	last := errors.New("no answer yet")
	for {
		st, err := client.Status(ctx)
		switch {
		case err != nil:
			last = err
		case peerToo && !peerUp(st):
			last = fmt.Errorf("its peer is not up: %s", peerState(st))
		default:
			return nil
		}
		select {
		case <-s.ended:
			return s.failure(errors.New("ended at once"))
		case <-ctx.Done():
			return s.failure(fmt.Errorf("%w (%w)", context.Cause(ctx), last))
		case <-time.After(pollEvery):
		}
	}
}

func peerUp(st control.Status) bool {
	for _, p := range st.Peers {
		if !p.Up {
			return false
		}
	}
	return len(st.Peers) > 0
}

func peerState(st control.Status) string {
	for _, p := range st.Peers {
		if !p.Up {
			return strings.TrimSpace(p.Name + " " + p.Reason + " " + p.Detail)
		}
	}
	return "none is known"
}

// failure wraps what is wrong with an agent in the end of its log.
func (s *site) failure(err error) error {
	return fmt.Errorf("the agent at site %s: %w%s", s.Name, err, tail(s.log()))
}

// tail gives the last lines of a log, set apart for an error message.
func tail(path string) string {
	b, err := os.ReadFile(path)
	b = bytes.TrimSpace(b)
	if err != nil || len(b) == 0 {
		return " (its log is empty)"
	}
	lines := strings.Split(string(b), "\n")
	return "; the end of its log:\n    " + strings.Join(lines[max(0, len(lines)-12):], "\n    ")
}

// alive is an error if an agent has ended.
func (w *world) alive() error {
	for _, s := range []*site{w.a, w.b} {
		select {
		case <-s.ended:
			return fmt.Errorf("the agent at site %s has ended", s.Name)
		default:
		}
	}
	return nil
}

// stopAgent ends an agent and undoes what it could not undo itself.
func (w *world) stopAgent(s *site) error {
	_ = s.agent.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		_ = s.agent.Kill()
		<-s.ended
	}
	if s.agent.Wait() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if _, err := s.Output(s.Command(ctx, w.opts.Binary, "cleanup", "--config", s.config())); err != nil {
		return fmt.Errorf("cleaning up after the agent at site %s: %w", s.Name, err)
	}
	return nil
}
