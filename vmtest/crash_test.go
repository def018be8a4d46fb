// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// wantNoCleanEnd says that a client whose agent was killed saw the transfer through or a reset, never a clean end with
// bytes missing.
func (o *outcome) wantNoCleanEnd(t *testing.T) {
	t.Helper()
	if o.Wrong != 0 {
		t.Errorf("%d exchanges ended cleanly with wrong bytes: %s", o.Wrong, o.Example)
	}
	for kind, n := range o.Errors {
		if kind != "reset" {
			t.Errorf("%d errors of kind %s (%s), want resets only", n, kind, o.Example)
		}
	}
}

func TestAKilledAgentInTransferIsAReset(t *testing.T) {
	for _, victim := range []string{"near", "far"} {
		for _, role := range []string{"fetch", "push"} {
			t.Run(victim+" "+role, func(t *testing.T) {
				w := servedWorld(t, setup{})
				port := map[string]uint16{"fetch": portSource, "push": portSink}[role]
				c := startClient(t, w.lab.A.Namespace, role, arg("addr", at(w.lab.B.Addr4, port)), arg("bytes", testkit.Size(200_000_000, 50_000_000)), "-count=8", "-concurrent=8")
				waitFor(t, 10*time.Second, "eight flows under way", func() bool {
					p := w.a.peer()
					return p.FlowsOpened == 8 && p.RawReceived+p.RawSent > uint64(testkit.Size(4_000_000, 1_000_000))
				})
				map[string]*agent{"near": w.a, "far": w.b}[victim].kill()
				o := c.wait()
				o.wantNoCleanEnd(t)
				if o.Errors["reset"] != 8 {
					t.Errorf("%d of 8 running transfers were reset: %+v", o.Errors["reset"], o)
				}
			})
		}
	}
}

// An agent that dies refuses nobody: its hooks go with it, and in the instant between, its listener is not found.
func TestAClientInATightLoopSeesNoRefusal(t *testing.T) {
	for _, victim := range []string{"near", "far"} {
		t.Run(victim, func(t *testing.T) {
			w := servedWorld(t, setup{})
			n := testkit.Count(10_000, 2000)
			c := startClient(t, w.lab.A.Namespace, "echo", arg("addr", at(w.lab.B.Addr4, portEcho)), arg("count", n), "-concurrent=16")
			waitFor(t, 10*time.Second, "flows", func() bool { return w.a.peer().FlowsOpened > uint64(n/20) })
			map[string]*agent{"near": w.a, "far": w.b}[victim].kill()
			o := c.wait()
			o.wantNoCleanEnd(t)
			if o.Errors["refused"] != 0 || o.OK < n*9/10 {
				t.Errorf("of %d connections %d were served, errors %v", n, o.OK, o.Errors)
			}
		})
	}
}

// The same while the agent comes and goes, so that steering begins and ends under the client's feet.
func TestRestartsRefuseNobody(t *testing.T) {
	w := servedWorld(t, setup{})
	c := startClient(t, w.lab.A.Namespace, "echo", arg("addr", at(w.lab.B.Addr4, portEcho)), "-concurrent=4", "-stdin")
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		w.a.kill()
		time.Sleep(200 * time.Millisecond)
		w.a.start()
		w.waitPeers()
	}
	c.finish()
	o := c.wait()
	o.wantNoCleanEnd(t)
	if o.OK == 0 {
		t.Error("no exchange succeeded")
	}
	t.Logf("%d exchanges, errors %v", o.OK, o.Errors)
}

func TestAnIdleConnectionOfAKilledAgentIsReset(t *testing.T) {
	for _, victim := range []string{"near", "far"} {
		t.Run(victim, func(t *testing.T) {
			w := servedWorld(t, setup{})
			c := startClient(t, w.lab.A.Namespace, "drink", arg("addr", at(w.lab.B.Addr4, portHold)))
			waitFor(t, 10*time.Second, "the flow to be open", func() bool { return w.a.peer().RawReceived > 0 })
			map[string]*agent{"near": w.a, "far": w.b}[victim].kill()
			if o := c.wait(); o.Errors["reset"] != 1 {
				t.Errorf("the client saw %+v, want a reset", o)
			}
		})
	}
}

// A peer that falls silent, instead of dying, is found out by its missing answers.
func TestASilentPeerIsDown(t *testing.T) {
	w := servedWorld(t, setup{})
	w.lab.Link.SetDown(true)
	waitFor(t, 10*time.Second, "the peer to be found down", func() bool { return !w.a.peer().Up })
	w.lab.Link.SetDown(false)
	client(t, w.lab.A, "echo", arg("addr", at(w.lab.B.Addr4, portEcho))).wantAll(t, 1)
	waitFor(t, 15*time.Second, "the peer to be back", func() bool { return w.a.peer().Up })
	before := w.a.peer().FlowsOpened
	client(t, w.lab.A, "echo", arg("addr", at(w.lab.B.Addr4, portEcho))).wantAll(t, 1)
	if w.a.peer().FlowsOpened != before+1 {
		t.Error("the peer is back, but its flows are not steered")
	}
}

// finish ends a client that runs until its standard input closes.
func (r *running) finish() { _ = r.stdin.Close() }
