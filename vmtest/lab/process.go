// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// ErrClosed is returned when something is asked of a lab after Close.
var ErrClosed = errors.New("the lab is closed")

// Process is a child that runs in a namespace and its cgroup. It is killed by Close, and when this process dies.
type Process struct {
	*exec.Cmd
	lab  *Lab
	once sync.Once
	err  error
}

// Command prepares a child; give it to Start, Run or Output of the same namespace.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

// Start starts the command in the namespace and its cgroup, from its first instruction on.
func (n *Namespace) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = n.cgroupFD
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // Ctrl-C is for the owner, who closes the lab in order

	n.lab.mu.Lock()
	defer n.lab.mu.Unlock()
	if n.lab.closed {
		return nil, ErrClosed
	}
	if err := n.onThread(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{Cmd: cmd, lab: n.lab}
	n.lab.processes[p] = struct{}{}
	return p, nil
}

// Wait waits for the process to end. Unlike exec.Cmd's it may be called by several goroutines and again.
func (p *Process) Wait() error {
	p.once.Do(func() {
		p.err = p.Cmd.Wait()
		p.lab.mu.Lock()
		delete(p.lab.processes, p)
		p.lab.mu.Unlock()
	})
	return p.err
}

// Kill sends SIGKILL; that the process has ended already is no error.
func (p *Process) Kill() error {
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", filepath.Base(p.Path), err)
	}
	return nil
}

// Run starts the command and waits for it.
func (n *Namespace) Run(cmd *exec.Cmd) error {
	p, err := n.Start(cmd)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Output runs the command and returns what it wrote to its standard output; the error carries its standard error.
func (n *Namespace) Output(cmd *exec.Cmd) ([]byte, error) {
	var out, diag bytes.Buffer
	cmd.Stdout = &out
	if cmd.Stderr == nil {
		cmd.Stderr = &diag
	}
	if err := n.Run(cmd); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(diag.Bytes()))
	}
	return out.Bytes(), nil
}
