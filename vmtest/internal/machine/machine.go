// SPDX-License-Identifier: Apache-2.0

// Package machine runs a plan in a virtual machine: under plain QEMU, or under virtme-ng.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// Spec is one boot.
type Spec struct {
	Kernel *kernel.Kernel
	Share  string // directory of the host that the guest writes to
	Guest  string // the static program that runs the plan in the guest
	Plan   plan.Plan
	Exact  bool   // the guest's clock counts instructions: exact time, one processor
	KVM    bool   // the processor's own virtualisation; see HaveKVM
	Append string // words for the kernel's command line
	Memory string // as QEMU reads it; "" is 2G
	Limit  time.Duration
}

// ErrDied is when a guest did not come to its end.
var ErrDied = errors.New("the guest did not come to its end")

// ConsoleLog is where a boot's kernel log lies.
func (s *Spec) ConsoleLog() string { return filepath.Join(s.Share, "console.log") }

// limited ends with ctx, or when the boot has had its time.
func (s *Spec) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("it ran longer than %v", s.Limit))
}

// ErrSilent is when a guest has not said a word: its kernel hangs before it has a console, which emulation brings about once in
// a hundred boots.
var ErrSilent = errors.New("nothing came from the guest")

// bootSilence is how long a guest may say nothing. On a host with a load of fifteen its first words take a minute.
const bootSilence = 5 * time.Minute

// listening ends with ctx, or when the log of a guest is empty after so long a time.
func listening(ctx context.Context, console string, silence time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() {
		if info, err := os.Stat(console); err == nil && info.Size() == 0 {
			cancel(fmt.Errorf("%w in %v", ErrSilent, silence))
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// start writes the plan where the guest finds it.
func (s *Spec) start() error {
	if err := os.MkdirAll(s.Share, 0o755); err != nil {
		return fmt.Errorf("sharing with the guest: %w", err)
	}
	if err := os.Remove(filepath.Join(s.Share, plan.Answer)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("sharing with the guest: %w", err)
	}
	return plan.Write(s.Share, plan.File, s.Plan)
}

// run runs the machine's process to its end, with its output in the guest's log, and reads the guest's answer. via is how the
// process gets at the log.
func (s *Spec) run(ctx context.Context, via func(*os.File) io.Writer, args ...string) (*plan.Report, error) {
	console, err := os.Create(s.ConsoleLog())
	if err != nil {
		return nil, fmt.Errorf("writing the guest's log: %w", err)
	}
	defer console.Close()
	ctx, deaf := listening(ctx, s.ConsoleLog(), bootSilence)
	defer deaf()
	return s.finish(ctx, runProcess(ctx, via(console), args...))
}

// finish reads the guest's answer. ended is how the machine's process ended.
func (s *Spec) finish(ctx context.Context, ended error) (*plan.Report, error) {
	var r plan.Report
	err := plan.Read(s.Share, plan.Answer, &r)
	switch {
	case err == nil:
		return &r, nil
	case context.Cause(ctx) != nil:
		return nil, fmt.Errorf("%w: %w (its log: %s)", ErrDied, context.Cause(ctx), s.ConsoleLog())
	case ended != nil:
		return nil, fmt.Errorf("%w: %w (its log: %s)", ErrDied, ended, s.ConsoleLog())
	}
	return nil, fmt.Errorf("%w (its log: %s)", ErrDied, s.ConsoleLog())
}

// runProcess runs a program until it ends or ctx does, and leaves nothing of it behind, even if this process is killed.
func runProcess(ctx context.Context, console io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal at the parent's death is one of the thread that started the child
		ended <- cmd.Run()
	}()
	err := <-ended
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return nil
}

// EmulatorFault tells whether a guest died of a fault of multi-threaded emulation: one processor traps on a breakpoint that
// another has already taken out of the kernel's code again. No real processor does that, and no program of the guest's
// brings it about.
func EmulatorFault(console string) bool {
	b, err := os.ReadFile(console)
	return err == nil && emulatorFault.Match(b)
}

var emulatorFault = regexp.MustCompile(`(Oops: int3|int3): 0000 \[#1\]`)

// Tail returns the last lines of a log.
func Tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
