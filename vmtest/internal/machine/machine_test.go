// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

func TestArguments(t *testing.T) {
	k := &kernel.Kernel{Image: "/boot/vmlinuz"}
	for _, c := range []struct {
		name      string
		spec      Spec
		has, lack []string
	}{
		{"emulated", Spec{}, []string{"tcg,thread=multi", "2G"}, []string{"-icount"}},
		{"exact", Spec{Exact: true}, []string{"-icount", "tcg,thread=single", "1"}, []string{"kvm"}},
		{"kvm", Spec{KVM: true, Memory: "4G"}, []string{"kvm", "4G"}, []string{"-icount", "2G"}},
		{"a comma", Spec{Share: "/a,b"}, []string{"local,id=share,path=/a,,b,security_model=none"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Kernel = k
			args := c.spec.qemuArgs("initramfs.gz")
			for _, a := range c.has {
				if !slices.Contains(args, a) {
					t.Errorf("no %q in %q", a, args)
				}
			}
			for _, a := range c.lack {
				if slices.Contains(args, a) {
					t.Errorf("%q in %q", a, args)
				}
			}
		})
	}
}

// A guest that says nothing is given up, and one that has said anything is not.
func TestListening(t *testing.T) {
	for _, said := range []string{"", "vmtest: up\n"} {
		console := filepath.Join(t.TempDir(), "console.log")
		if err := os.WriteFile(console, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := listening(t.Context(), console, 10*time.Millisecond)
		err := runProcess(ctx, &bytes.Buffer{}, "/bin/sleep", "0.3")
		if silent := errors.Is(context.Cause(ctx), ErrSilent); silent != (said == "") || silent != (err != nil) {
			t.Errorf("said %q: %v, %v", said, err, context.Cause(ctx))
		}
		s := Spec{Share: filepath.Dir(console)}
		if _, err := s.finish(ctx, err); !errors.Is(err, ErrDied) || errors.Is(err, ErrSilent) != (said == "") {
			t.Errorf("said %q: %v", said, err)
		}
		cancel()
	}
}

// A machine that is stopped is gone, with everything it started.
func TestStoppedIsGone(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	pidFile := filepath.Join(t.TempDir(), "pid")
	done := make(chan error, 1)
	go func() {
		done <- runProcess(ctx, &bytes.Buffer{}, "/bin/sh", "-c", "sleep 600 & echo $! >"+pidFile+".tmp; mv "+pidFile+".tmp "+pidFile+"; wait")
	}()
	var pid string
	for pid == "" {
		b, _ := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(b))
		time.Sleep(10 * time.Millisecond)
	}
	cancel(errors.New("stopped"))
	if err := <-done; err == nil {
		t.Error("no error")
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %s still runs", pid)
		}
	}
}

func TestAGuestWithoutAnAnswerDied(t *testing.T) {
	s := Spec{Share: t.TempDir()}
	if _, err := s.finish(t.Context(), nil); !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), s.ConsoleLog()) {
		t.Errorf("%v", err)
	}
	if err := plan.Write(s.Share, plan.Answer, plan.Report{Release: "6.1"}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.finish(t.Context(), errors.New("exit status 1")); err != nil || r.Release != "6.1" {
		t.Errorf("%+v, %v", r, err)
	}
	// What an earlier guest answered is not this one's.
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.finish(t.Context(), nil); !errors.Is(err, ErrDied) {
		t.Errorf("%v", err)
	}
}

func TestEmulatorFault(t *testing.T) {
	for name, c := range map[string]struct {
		console string
		want    bool
	}{
		"6.12":          {"[  205.444194] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", true},
		"6.1":           {"[   12.0] int3: 0000 [#1] PREEMPT SMP NOPTI", true},
		"another fault": {"[   12.0] BUG: kernel NULL pointer dereference\n[   12.1] Oops: 0000 [#1] PREEMPT SMP NOPTI", false},
		"none":          {"reboot: Power down", false},
	} {
		path := filepath.Join(t.TempDir(), "console.log")
		if err := os.WriteFile(path, []byte(c.console), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := EmulatorFault(path); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
