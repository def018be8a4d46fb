// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// Run does what the plan in the shared directory says, and answers there. The host's root is this process's root by now.
func Run(share string) error {
	var p plan.Plan
	if err := plan.Read(share, plan.File, &p); err != nil {
		return err
	}
	report := plan.Report{Release: release()}
	report.Notes = prepare(p)
	for _, n := range report.Notes {
		fmt.Println("vmtest:", n)
	}
	for _, s := range p.Steps {
		fmt.Printf("vmtest: at %s: %s\n", uptime(), s.Name)
		report.Results = append(report.Results, runStep(share, s))
	}
	fmt.Printf("vmtest: done at %s\n", uptime())
	return plan.Write(share, plan.Answer, report)
}

// prepare makes the guest what a booted host is. What goes wrong is noted, and shows in the steps that miss it.
func prepare(p plan.Plan) []string {
	var notes []string
	note := func(err error) {
		if err != nil {
			notes = append(notes, err.Error())
		}
	}
	note(lateMounts(p.Hybrid))
	for _, m := range p.Modules {
		note(LoadModule(m))
	}
	for _, l := range p.Links {
		note(link(l))
	}
	note(unix.Sethostname([]byte("vmtest")))
	note(loopbackUp())
	note(keepHooks())
	return notes
}

// lateMounts mounts what a booted host has, unless another runner's init did that before.
func lateMounts(hybrid bool) error {
	errs := []error{
		mountUnless("tmpfs", "/dev/shm", "tmpfs"),
		mountUnless("devpts", "/dev/pts", "devpts"),
		mountUnless("bpf", "/sys/fs/bpf", "bpf"),
		os.MkdirAll("/run/netns", 0o755),
		os.MkdirAll("/run/lock", 0o755),
	}
	if hybrid {
		errs = append(errs, hybridCgroups())
	} else if _, err := cgroup2(); err != nil {
		errs = append(errs, mountAt("cgroup2", "/sys/fs/cgroup", "cgroup2", ""))
	}
	return errors.Join(errs...)
}

func mountUnless(source, target, fstype string) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err == nil && strings.Contains(string(mounts), " "+target+" "+fstype+" ") {
		return nil
	}
	return mountAt(source, target, fstype, "")
}

// hybridCgroups lays /sys/fs/cgroup as distributions did that used the first version's controllers.
func hybridCgroups() error {
	const top = "/sys/fs/cgroup"
	return errors.Join(
		mountAt("tmpfs", top, "tmpfs", ""),
		mountAt("cgroup2", top+"/unified", "cgroup2", ""),
		mountAt("cgroup", top+"/cpu", "cgroup", "cpu"),
		mountAt("cgroup", top+"/pids", "cgroup", "pids"), // newer distribution kernels are built without memory and cpuset there
	)
}

func mountAt(source, target, fstype, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return mount(source, target, fstype, 0, data)
}

func link(l plan.Link) error {
	if err := os.MkdirAll(filepath.Dir(l.From), 0o755); err != nil {
		return err
	}
	err := os.Symlink(l.To, l.From)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting the loopback up: %w", err)
	}
	return nil
}

// stopGrace is how long a step that ran out of time has to tell where it stands.
const stopGrace = 20 * time.Second

func runStep(share string, s plan.Step) plan.Result {
	start := time.Now()
	err := execute(share, s)
	r := plan.Result{Name: s.Name, Seconds: time.Since(start).Seconds()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.ExitCode = exit.ExitCode()
		if r.ExitCode < 0 {
			r.Err = exit.String()
		}
	case err != nil:
		r.ExitCode, r.Err = -1, err.Error()
	}
	return r
}

func execute(share string, s plan.Step) error {
	log, err := os.Create(plan.LogPath(share, s.Name))
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Duration(s.TimeoutS)*time.Second,
		fmt.Errorf("did not end within %d s", s.TimeoutS))
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	cmd.Env = append(environment(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A Go program answers SIGQUIT with the stacks of its goroutines: that is where the time went.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = stopGrace
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err != nil && !strings.HasPrefix(err.Error(), "exit status") {
		return fmt.Errorf("%s: %w", strings.Join(s.Args, " "), err)
	}
	return err
}
