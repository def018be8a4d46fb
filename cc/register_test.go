// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// A new algorithm is one C file and one line of the catalogue.
func TestCatalogueAndFilesAgree(t *testing.T) {
	files, err := filepath.Glob("algorithm/*.c")
	if err != nil || len(files) != len(catalogue) {
		t.Errorf("%d files, %d lines of the catalogue: %v", len(files), len(catalogue), err)
	}
	for _, a := range catalogue {
		file := "algorithm/" + strings.TrimPrefix(a.Name, "tl_") + ".c"
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), `"`+a.Name+`"`) {
			t.Errorf("%s does not define %s: %v", file, a.Name, err)
		}
		if a.Reacts == "" || a.Source == "" || len(a.Name) > 15 {
			t.Errorf("%+v is not whole", a)
		}
	}
}

// Every algorithm is taken by the kernel, offered, and gone again; the note is there meanwhile where it must be.
func TestRegister(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		for _, a := range catalogue {
			t.Run(a.Name, func(t *testing.T) {
				r := h.register(a.Name)
				if !available(t, a.Name) || r.Mode != h.mode || r.Shared || r.Other {
					t.Errorf("registered as %+v, offered: %v", r, available(t, a.Name))
				}
				if want := map[Mode]int{ByLink: 0, ByMap: 1}[h.mode]; h.count(a.Name) != want {
					t.Errorf("%d notes, want %d", h.count(a.Name), want)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				if available(t, a.Name) || h.count(a.Name) != 0 {
					t.Errorf("after Close: offered %v, %d notes", available(t, a.Name), h.count(a.Name))
				}
			})
		}
		if left, _ := os.ReadDir(h.dir); len(left) > 0 {
			t.Errorf("%s is left", left[0].Name())
		}
	})
}

func TestUnknownName(t *testing.T) {
	for _, name := range []string{"reno", "tl_nosuch", ""} {
		if _, err := Register(name, Options{}); !errors.Is(err, ErrUnknown) {
			t.Errorf("Register(%q): %v", name, err)
		}
	}
	if _, err := Remove("reno", ""); !errors.Is(err, ErrUnknown) {
		t.Errorf("Remove of the kernel's: %v", err)
	}
}

// Whoever comes second shares; the last takes it away.
func TestShared(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			rs := []*Registration{h.register("tl_reno"), h.register("tl_reno")}
			if !rs[1].Shared || rs[1].Other {
				t.Errorf("the second is %+v", rs[1])
			}
			if err := rs[order[0]].Close(); err != nil {
				t.Error(err)
			}
			if !available(t, "tl_reno") {
				t.Fatal("the first to go took it from the other")
			}
			if err := rs[order[1]].Close(); err != nil {
				t.Error(err)
			}
			if available(t, "tl_reno") {
				t.Fatal("the last left it behind")
			}
		}
	})
}

// A registration of another version is shared, too, and known as such.
func TestOtherVersion(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		first := h.register("tl_reno")
		real := catalogue[0].load
		defer func() { catalogue[0].load = real }()
		catalogue[0].load = func() (*ebpf.CollectionSpec, error) { return otherVersion(real) }
		if r := h.register("tl_reno"); !r.Shared || !r.Other {
			t.Errorf("the second is %+v", r)
		} else if err := r.Close(); err != nil {
			t.Error(err)
		}
		catalogue[0].load = real
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	})
}

// otherVersion is an algorithm whose ssthresh has other constants.
func otherVersion(load func() (*ebpf.CollectionSpec, error)) (*ebpf.CollectionSpec, error) {
	spec, err := load()
	if err != nil {
		return nil, err
	}
	p := spec.Programs["tl_reno_ssthresh"]
	for i, ins := range p.Instructions {
		if ins.Constant == 2 {
			p.Instructions[i].Constant = 3
		}
	}
	return spec, nil
}

// Where registrations are for good they must be written down.
func TestNeedsARecorder(t *testing.T) {
	modes(t)
	var u *Unsupported
	if _, err := Register("tl_reno", Options{Mode: ByMap, LockDir: t.TempDir()}); !errors.As(err, &u) {
		t.Errorf("error %v", err)
	}
}

// One kind of registration in the way of the other is shared, whoever made it.
func TestMixedModes(t *testing.T) {
	if len(modes(t)) < 2 {
		testkit.NeedFeature(t, "struct-ops-link", errors.New("the kernel has no links for struct_ops"))
	}
	h := newHost(t, ByMap)
	byMap := h.register("tl_reno")
	o := h.options()
	o.Mode = Any
	second, err := Register("tl_reno", o)
	if err != nil {
		t.Fatal(err)
	}
	if second.Mode != ByMap || !second.Shared {
		t.Errorf("the second is %+v", second)
	}
	if err := errors.Join(byMap.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	if available(t, "tl_reno") {
		t.Error("it is still there")
	}
	byLink, err := Register("tl_reno", o)
	if err != nil || byLink.Mode != ByLink {
		t.Fatalf("%+v, %v", byLink, err)
	}
	defer byLink.Close()
	o.Mode = ByMap
	if r, err := Register("tl_reno", o); err == nil {
		t.Errorf("by map, beside a link: %+v", r)
	}
	if left, err := os.ReadDir(o.LockDir); err != nil || len(left) > 0 {
		t.Errorf("a refusal leaves %v, %v", left, err)
	}
}

// registerAndWait is the child: "mode dir name".
func registerAndWait(spec string) {
	w := strings.Fields(spec)
	r, err := Register(w[2], Options{Mode: Mode(w[0]), Recorder: &notes{}, LockDir: w[1]})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
	_ = r.Close() // or else r would be collected, and its link closed
}

// child registers in another process, which is killed at the latest with the test.
func (h *host) child(name string) (kill func()) {
	h.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", childEnv, h.mode, h.dir, name))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	h.t.Cleanup(kill)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		h.t.Fatalf("the child says %q", line)
	}
	return kill
}

// A killed process leaves a link never, a map always; then Remove takes it away, once nobody uses it.
func TestKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		kill := h.child("tl_reno")
		lock := lockPath(h.dir, "tl_reno")
		if got, err := Remove("tl_reno", lock); err != nil || got != map[Mode]Outcome{ByLink: Absent, ByMap: InUse}[h.mode] {
			t.Errorf("while it lives: %s, %v", got, err)
		}
		if !available(t, "tl_reno") {
			t.Fatal("Remove took it from a process that lives")
		}
		kill()
		if got := available(t, "tl_reno"); got != (h.mode == ByMap) {
			t.Errorf("after the kill it is offered: %v", got)
		}
		if got, err := Remove("tl_reno", lock); err != nil || got != map[Mode]Outcome{ByLink: Absent, ByMap: Removed}[h.mode] {
			t.Errorf("after the kill: %s, %v", got, err)
		}
		if available(t, "tl_reno") {
			t.Error("it is left")
		}
	})
}

// What a killed process left is replaced, not shared: it may be an old version. What a living one has is shared.
func TestTakenOver(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		kill := h.child("tl_reno")
		if r := h.register("tl_reno"); !r.Shared {
			t.Error("it is not shared with a process that lives")
		} else if kill(); !available(t, "tl_reno") {
			t.Error("the other's end took it away")
		} else if err := r.Close(); err != nil || available(t, "tl_reno") {
			t.Errorf("the last left it behind: %v", err)
		}
		h.child("tl_reno")()
		if r := h.register("tl_reno"); r.Shared {
			t.Error("it is shared with a process that is dead")
		}
	})
}
