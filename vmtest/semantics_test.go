// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// families runs f for the IPv4 and the IPv6 address of site B.
func (w *world) families(t *testing.T, f func(t *testing.T, addr netip.Addr)) {
	t.Run("ipv4", func(t *testing.T) { f(t, w.lab.B.Addr4) })
	t.Run("ipv6", func(t *testing.T) {
		testkit.NeedIPv6(t)
		f(t, w.lab.B.Addr6)
	})
}

func servedWorld(t *testing.T, s setup) *world {
	t.Helper()
	w := newWorld(t, s)
	serve(t, w.lab.B, w.lab.B.Addr4, w.lab.B.Addr6)
	return w
}

func arg(name string, value any) string { return fmt.Sprintf("-%s=%v", name, value) }

func TestBytesAreExactBothWays(t *testing.T) {
	w := servedWorld(t, setup{})
	w.families(t, func(t *testing.T, addr netip.Addr) {
		before := w.a.peer()
		client(t, w.lab.A, "echo", arg("addr", at(addr, portEcho)), "-count=20").wantAll(t, 20)
		for _, bytes := range []int64{0, 1, 1000, 300_000, testkit.Size(20_000_000, 2_000_000)} {
			client(t, w.lab.A, "fetch", arg("addr", at(addr, portSource)), arg("bytes", bytes)).wantAll(t, 1)
			client(t, w.lab.A, "push", arg("addr", at(addr, portSink)), arg("bytes", bytes)).wantAll(t, 1)
		}
		after := w.a.peer()
		if n := after.FlowsOpened - before.FlowsOpened; n != 30 {
			t.Errorf("%d flows went through the engine, want 30", n)
		}
	})
}

func TestTheApplicationSeesADirectConnection(t *testing.T) {
	w := servedWorld(t, setup{})
	w.families(t, func(t *testing.T, addr netip.Addr) {
		o := client(t, w.lab.A, "echo", arg("addr", at(addr, portEcho)))
		o.wantAll(t, 1)
		if o.Remote != at(addr, portEcho) {
			t.Errorf("getpeername shows %s, want %s", o.Remote, at(addr, portEcho))
		}
		want := w.lab.A.Addr4
		if addr.Is6() {
			want = w.lab.A.Addr6
		}
		if got := netip.MustParseAddrPort(o.Local).Addr(); got != want {
			t.Errorf("getsockname shows %s, want %s", got, want)
		}
	})
}

func TestAThousandAtOnce(t *testing.T) {
	w := servedWorld(t, setup{})
	n := testkit.Count(1000, 100)
	client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), arg("count", n), arg("concurrent", n), "-bytes=200000").wantAll(t, n)
}

func TestTenThousandShortFlowsToASlowReader(t *testing.T) {
	w := servedWorld(t, setup{})
	n := testkit.Count(10_000, 500)
	client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), arg("count", n), arg("concurrent", testkit.Count(200, 50)),
		"-bytes=3000", "-pause=100ms", "-rate=200000").wantAll(t, n)
}

func TestAResetAtTheFarEndIsAReset(t *testing.T) {
	w := servedWorld(t, setup{})
	w.families(t, func(t *testing.T, addr netip.Addr) {
		o := client(t, w.lab.A, "drink", arg("addr", at(addr, portReset)), "-count=20")
		if o.Errors["reset"] != 20 {
			t.Errorf("%d of 20 resets seen, %d clean ends, errors %v", o.Errors["reset"], o.OK, o.Errors)
		}
	})
}

// A refusal at the far end cannot be told in time, since the application's connect has succeeded: it is seen as a
// reset, and the next connect goes direct and gets the true error.
func TestARefusalIsAResetThenTheTrueError(t *testing.T) {
	w := servedWorld(t, setup{})
	w.families(t, func(t *testing.T, addr netip.Addr) {
		if o := client(t, w.lab.A, "drink", arg("addr", at(addr, portNobody))); o.Errors["reset"] != 1 {
			t.Errorf("first try: %+v, want a reset", o.Errors)
		}
		if o := client(t, w.lab.A, "drink", arg("addr", at(addr, portNobody))); o.Errors["refused"] != 1 {
			t.Errorf("second try: %+v, want a refusal", o.Errors)
		}
	})
}

// What the far agent does not allow goes direct from then on; the connection that found it out is reset, since its first
// bytes had been sent.
func TestOutsideAllow(t *testing.T) {
	w := servedWorld(t, setup{allow: func(site *lab.Site) []string {
		return []string{fmt.Sprintf("%s/32:%d", site.Addr4, portSink)}
	}})
	addr := arg("addr", at(w.lab.B.Addr4, portEcho))
	client(t, w.lab.A, "echo", addr)
	client(t, w.lab.A, "echo", addr, "-count=5").wantAll(t, 5)
	if n := w.b.peer().FlowsAccepted; n != 0 {
		t.Errorf("the far agent served %d flows outside its allow list", n)
	}
	var status statusView
	w.a.ask(&status, "status")
	if status.reason("not-allowed") == 0 {
		t.Errorf("no flow counted as not-allowed: %+v", status.Reasons)
	}
	client(t, w.lab.A, "push", arg("addr", at(w.lab.B.Addr4, portSink)), "-bytes=100000").wantAll(t, 1)
	if n := w.b.peer().FlowsAccepted; n != 1 {
		t.Errorf("the far agent served %d flows inside its allow list, want 1", n)
	}
}

func TestUnsteeredFlowsAreUntouched(t *testing.T) {
	w := servedWorld(t, setup{})
	before := w.a.peer().FlowsOpened
	w.families(t, func(t *testing.T, addr netip.Addr) {
		client(t, w.lab.A, "echo", arg("addr", at(addr, portPlain)), "-count=50").wantAll(t, 50)
	})
	if after := w.a.peer().FlowsOpened; after != before {
		t.Errorf("%d flows without a dedup rule went through the engine", after-before)
	}
}

func TestARepeatedStreamCostsNextToNothing(t *testing.T) {
	w := servedWorld(t, setup{})
	bytes := uint64(testkit.Size(20_000_000, 4_000_000))
	fetch := func() uint64 {
		before := w.a.peer().WireReceived
		client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), arg("bytes", bytes)).wantAll(t, 1)
		return w.a.peer().WireReceived - before
	}
	cold, warm := fetch(), fetch()
	t.Logf("cold %d, warm %d wire bytes of %d", cold, warm, bytes)
	if warm*500 > bytes {
		t.Errorf("the repeat cost %d wire bytes, want at most 1/500 of %d", warm, bytes)
	}
	if cold > bytes {
		t.Errorf("the first send cost %d wire bytes, more than the stream's %d", cold, bytes)
	}
}

// Both agents steer everything towards each other; neither may steer the other's or its own connections.
func TestTwoAgentsThatSteerEverythingDoNotLoop(t *testing.T) {
	w := servedWorld(t, setup{rules: func(_, _ *lab.Site) string {
		return "  - {remote: 0.0.0.0/0, dedup: {peer: peer}}\n  - {remote: \"::/0\", dedup: {peer: peer}}\n"
	}})
	serve(t, w.lab.A, w.lab.A.Addrs()...)
	back := w.lab.A.Addrs()[len(w.lab.A.Addrs())-1] // over IPv6 where there is any
	bytes := arg("bytes", testkit.Size(1_000_000, 300_000))
	for range 3 {
		client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), bytes, "-count=5").wantAll(t, 5)
		client(t, w.lab.B, "fetch", arg("addr", at(back, portSource)), bytes, "-count=5").wantAll(t, 5)
	}
	a, b := w.a.peer(), w.b.peer()
	if a.FlowsOpened != 15 || b.FlowsOpened != 15 || a.FlowsAccepted != 15 || b.FlowsAccepted != 15 {
		t.Errorf("flows opened and accepted: a %d %d, b %d %d, want 15 each", a.FlowsOpened, a.FlowsAccepted, b.FlowsOpened, b.FlowsAccepted)
	}
}

func TestDrainLetsFlowsFinish(t *testing.T) {
	w := servedWorld(t, setup{})
	slow := startClient(t, w.lab.A.Namespace, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), "-bytes=4000000", "-rate=1000000")
	waitFor(t, 5*time.Second, "the flow to be open", func() bool { return w.a.peer().FlowsOpened == 1 })
	trunkline(t, "drain", "--config", w.a.path("trunkline.yaml"))
	slow.wait().wantAll(t, 1)
	client(t, w.lab.A, "echo", arg("addr", at(w.lab.B.Addr4, portEcho))).wantAll(t, 1)
	if n := w.a.peer().FlowsOpened; n != 1 {
		t.Errorf("%d flows opened, want 1: a draining agent steers no more", n)
	}
}

func TestReloadWithABadFileChangesNothing(t *testing.T) {
	w := servedWorld(t, setup{})
	w.a.writeConfig(strings.Replace(w.a.config, "rules:", "ruls:", 1))
	raw, err := exec.Command(binary(t), "reload", "--config", w.a.path("trunkline.yaml")).CombinedOutput()
	if out := string(raw); err == nil || !strings.Contains(out, "ruls") || strings.Count(out, "\n") != 1 {
		t.Errorf("reload said %q (%v), want one line that names the key", out, err)
	}
	client(t, w.lab.A, "echo", arg("addr", at(w.lab.B.Addr4, portEcho)), "-count=5").wantAll(t, 5)
	if n := w.a.peer().FlowsOpened; n != 5 {
		t.Errorf("%d flows opened after the failed reload, want 5", n)
	}
}

func TestOtherKindsOfSocketsAreUntouched(t *testing.T) {
	w := servedWorld(t, setup{})
	w.families(t, func(t *testing.T, addr netip.Addr) {
		for _, kind := range []struct{ reason, flag string }{{"mptcp", "-mptcp"}, {"bound-device", "-device=wan0"}} {
			t.Run(kind.reason, func(t *testing.T) {
				if kind.reason == "mptcp" {
					testkit.NeedMPTCP(t)
				}
				before := w.a.peer().FlowsOpened
				client(t, w.lab.A, "echo", arg("addr", at(addr, portEcho)), "-count=5", kind.flag).wantAll(t, 5)
				if n := w.a.peer().FlowsOpened - before; n != 0 {
					t.Errorf("%d flows went through the engine", n)
				}
				var status statusView
				w.a.ask(&status, "status")
				if status.reason(kind.reason) < 5 {
					t.Errorf("%d flows counted, want 5: %+v", status.reason(kind.reason), status.Reasons)
				}
			})
		}
		serveDatagrams(t, w.lab.B, netip.AddrPortFrom(addr, portEcho))
		client(t, w.lab.A, "udp", arg("addr", at(addr, portEcho)), "-count=5").wantAll(t, 5)
	})
}

func TestAClientInAnotherNamespaceIsUntouched(t *testing.T) {
	w := servedWorld(t, setup{})
	inner, _, err := w.lab.A.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	before := w.a.peer().FlowsOpened
	c := startClient(t, inner, "echo", arg("addr", at(w.lab.B.Addr4, portEcho)), "-count=5")
	c.wait().wantAll(t, 5)
	if n := w.a.peer().FlowsOpened - before; n != 0 {
		t.Errorf("%d flows of another namespace went through the engine", n)
	}
	var status statusView
	w.a.ask(&status, "status")
	if status.reason("other-netns") < 5 {
		t.Errorf("reasons %+v, want 5 of other-netns", status.Reasons)
	}
}

func TestPathsAreMeasured(t *testing.T) {
	w := servedWorld(t, setup{})
	client(t, w.lab.A, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), "-bytes=3000000").wantAll(t, 1)
	var got struct {
		Paths []struct {
			Prefix        string `json:"prefix"`
			Peer          string `json:"peer"`
			MinRTT        uint32 `json:"rtt_min_us"`
			BytesReceived uint64 `json:"bytes_received"`
		} `json:"paths"`
	}
	w.a.ask(&got, "flows", "--paths")
	for _, p := range got.Paths {
		if p.Prefix == "10.81.2.0/24" && p.Peer == "peer" {
			if p.MinRTT < 9_000 || p.MinRTT > 60_000 || p.BytesReceived < 1_000_000 {
				t.Errorf("the path over a WAN of 10 ms that carried 3 MB is shown as %+v", p)
			}
			return
		}
	}
	t.Errorf("no path through the peer among %+v", got.Paths)
}
