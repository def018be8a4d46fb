// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf/rlimit"

	"github.com/trunkline/trunkline/internal/testkit"
)

// childEnv makes the test binary a process that registers an algorithm and waits to be killed.
const childEnv = "TL_TEST_CC_CHILD"

// Registrations are the machine's: none may be left, whatever fails.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		registerAndWait(spec)
	}
	code := m.Run()
	for _, a := range catalogue {
		if names, _ := Available(); slices.Contains(names, a.Name) {
			fmt.Fprintf(os.Stderr, "%s is left in the kernel\n", a.Name)
			code = 1
		}
	}
	os.Exit(code)
}

// modes returns the modes that this kernel has; none skips the test.
func modes(t *testing.T) []Mode {
	t.Helper()
	testkit.NeedRoot(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	mode, err := Probe()
	testkit.NeedFeature(t, "struct-ops", err)
	if mode == ByLink {
		return []Mode{ByLink, ByMap}
	}
	return []Mode{ByMap}
}

// notes is a Recorder that keeps what it is told.
type notes struct {
	mu   sync.Mutex
	held map[string]int
}

func (n *notes) Record(name, _ string) (func() error, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held == nil {
		n.held = map[string]int{}
	}
	n.held[name]++
	return func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.held[name]--
		return nil
	}, nil
}

func (n *notes) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[name]
}

// host is a machine with a lock directory of the test's own.
type host struct {
	t    *testing.T
	mode Mode
	dir  string
	notes
}

func newHost(t *testing.T, mode Mode) *host {
	h := &host{t: t, mode: mode, dir: t.TempDir()}
	// Before the directory goes: nothing that a test registers outlives it.
	t.Cleanup(func() {
		for _, a := range catalogue {
			if _, err := Remove(a.Name, lockPath(h.dir, a.Name)); err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

func (h *host) options() Options { return Options{Mode: h.mode, Recorder: &h.notes, LockDir: h.dir} }

// register registers for the time of the test, if nobody closes it before.
func (h *host) register(name string) *Registration {
	h.t.Helper()
	r, err := Register(name, h.options())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = r.Close() })
	return r
}

func available(t *testing.T, name string) bool {
	t.Helper()
	names, err := Available()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(names, name)
}

// eachMode runs a test for each way of registering that this kernel has.
func eachMode(t *testing.T, f func(t *testing.T, h *host)) {
	for _, mode := range modes(t) {
		t.Run("by "+string(mode), func(t *testing.T) { f(t, newHost(t, mode)) })
	}
}
