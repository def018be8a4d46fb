// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

var lossy = lab.Options{Rate: 40e6, RTT: 20 * time.Millisecond, Loss: 0.003, Seed: 5}

// traffic is enough for some losses on the lossy path.
var traffic = testkit.Size(4<<20, 1<<20)

// Every algorithm carries bytes exactly over a path with losses, with super-packets and without, and reacts to the losses.
func TestTraffic(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run("by "+string(mode), func(t *testing.T) {
			h, p := newHost(t, mode), newPath(t, lossy)
			for _, a := range catalogue {
				t.Run(a.Name, func(t *testing.T) {
					h.t = t
					r := h.register(a.Name)
					for _, gso := range []bool{true, false} {
						p.gso(gso)
						carries(t, p.dial(t, a.Name), gso)
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

func carries(t *testing.T, f *flow, gso bool) {
	stop := f.watch()
	if err := f.send(traffic, nil); err != nil {
		t.Errorf("super-packets %v: %v", gso, err)
	}
	samples := stop()
	if samples[len(samples)-1].retransmits == 0 {
		t.Errorf("super-packets %v: nothing was sent again, so there were no losses", gso)
	}
	if slices.ContainsFunc(samples, func(s sample) bool { return s.cwnd == 0 }) {
		t.Errorf("super-packets %v: a window of nothing", gso)
	}
}

// A loss leaves of the window what the papers say.
func TestDecrease(t *testing.T) {
	h := newHost(t, modes(t)[0])
	p := newPath(t, lossy)
	for name, want := range map[string]float64{"tl_reno": 0.5, "tl_cubic": 0.7, "tl_bic": 0.8, "tl_hybla": 0.5} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			h.register(name)
			f := p.dial(t, name)
			stop := f.watch()
			if err := f.send(testkit.Size(8<<20, 6<<20), nil); err != nil {
				t.Fatal(err)
			}
			found := decreases(stop())
			slices.Sort(found)
			if len(found) < 2 {
				t.Fatalf("%d decreases were seen", len(found))
			}
			if m := found[len(found)/2]; m < want-0.06 || m > want+0.06 {
				t.Errorf("the window was multiplied by %.2f at a loss, want %.2f; all: %.2f", m, want, found)
			}
		})
	}
}

// A live flow keeps its algorithm when the name goes, and when it comes back.
func TestLiveFlowsKeepTheirs(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		p := newPath(t, lossy)
		r := h.register("tl_reno")
		old := p.dial(t, "tl_reno")
		err := old.send(traffic, func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if available(t, "tl_reno") {
				t.Error("it is offered though nobody registers it")
			}
			old.want("tl_reno")
			if err := setName(p.dial(t, "reno").raw, "tl_reno"); !errors.Is(err, unix.ENOENT) {
				t.Errorf("a new flow that asks for it gets %v", err)
			}
			h.register("tl_reno")
			if err := p.dial(t, "tl_reno").send(traffic/2, nil); err != nil {
				t.Error(err)
			}
			old.want("tl_reno")
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A flow may change in mid-flow, from the kernel's algorithm to ours and back.
func TestSwitchInMidFlow(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		p := newPath(t, lossy)
		for _, a := range catalogue {
			h.register(a.Name)
			f := p.dial(t, "reno")
			err := f.send(traffic/2, func() {
				for _, name := range []string{a.Name, "reno", a.Name} {
					if err := setName(f.raw, name); err != nil {
						t.Errorf("to %s: %v", name, err)
					}
					f.want(name)
				}
			})
			if err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
	})
}

// The kernel's own algorithm of the same name is another one, and both work at once.
func TestBesideTheKernels(t *testing.T) {
	eachMode(t, func(t *testing.T, h *host) {
		p := newPath(t, lossy)
		names, err := Available()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range catalogue {
			kernels := strings.TrimPrefix(a.Name, ours)
			if !slices.Contains(names, kernels) {
				continue
			}
			h.register(a.Name)
			var wg sync.WaitGroup
			for _, name := range []string{a.Name, kernels} {
				f := p.dial(t, name)
				wg.Go(func() {
					if err := f.send(traffic/2, nil); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					f.want(name)
				})
			}
			wg.Wait()
		}
	})
}

// A thousand flows at once, each with a state of its own.
func TestManyFlows(t *testing.T) {
	h := newHost(t, modes(t)[0])
	h.register("tl_illinois")
	p := newPath(t, lab.Options{Rate: 400e6, RTT: 2 * time.Millisecond, Loss: 0.001, Seed: 5})
	n := testkit.Count(1000, 50)
	flows := make([]*flow, n)
	for i := range flows {
		flows[i] = p.dial(t, "tl_illinois")
	}
	var wg sync.WaitGroup
	for _, f := range flows {
		wg.Go(func() {
			if err := f.send(20_000, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
