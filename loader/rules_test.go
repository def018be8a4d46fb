// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

var lan = lab.Options{Rate: 100e6, RTT: 10 * time.Millisecond}

func full(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func TestRulesOfSockets(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		for name, ends := range map[string][2]netip.Addr{"ipv4": {s.A4, s.B4}, "ipv6": {s.A6, s.B6}} {
			t.Run(name, func(t *testing.T) {
				if name == "ipv6" {
					testkit.NeedIPv6(t)
				}
				rulesOfSockets(t, s, ends[0], ends[1])
			})
		}
	}, nil)
}

func rulesOfSockets(t *testing.T, s site, a, b netip.Addr) {
	// Buffers below the usual maxima: an older kernel lets nobody raise those from a network namespace of its own.
	const window, sndbuf, pacing = 90_000, 80_000, 5 << 20
	l := loadAt(t, s,
		policy.Rule{ID: 1, Name: "reno", Remote: full(b), Ports: []uint16{sinkPort}, Congestion: "reno",
			WindowBytes: window, SndbufBytes: sndbuf, PacingBps: pacing},
		policy.Rule{ID: 2, Name: "absent", Remote: full(b), Ports: []uint16{idlePort}, Congestion: "no-such-thing"},
		policy.Rule{ID: 3, Name: "in", Remote: full(b), Ports: []uint16{7100}, Congestion: "cubic", WindowBytes: window},
		policy.Rule{ID: 4, Name: "in2", Remote: full(b), Ports: []uint16{7101}, Congestion: "reno"},
	)

	c := dialAt(t, b, sinkPort)
	if got := congestionOf(t, c); got != "reno" {
		t.Errorf("congestion control %q, want reno", got)
	}
	if got := intOption(t, c, unix.SOL_SOCKET, unix.SO_RCVBUF); got != 2*window {
		t.Errorf("receive buffer %d, want %d", got, 2*window)
	}
	if got := intOption(t, c, unix.SOL_SOCKET, unix.SO_SNDBUF); got != 2*sndbuf {
		t.Errorf("send buffer %d, want %d", got, 2*sndbuf)
	}
	if got := intOption(t, c, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE); got != pacing {
		t.Errorf("pacing %d, want %d", got, pacing)
	}
	f := flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
	if f.RuleID != 1 || f.Kind != "plain" || f.Passive || f.Congestion != "reno" || f.WindowBytes != window ||
		f.Remote != netip.AddrPortFrom(b, sinkPort) || f.CongestionErrno != 0 || f.WindowErrno != 0 {
		t.Errorf("telemetry: %+v", f)
	}

	c = dialAt(t, b, idlePort)
	f = flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
	if f.RuleID != 2 || f.CongestionErrno != int32(unix.ENOENT) || f.Congestion != congestionOf(t, c) {
		t.Errorf("an unknown congestion control: %+v", f)
	}

	c = acceptAt(t, s, a, 7100)
	if got := congestionOf(t, c); got != "cubic" {
		t.Errorf("accepted: congestion control %q, want cubic", got)
	}
	f = flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
	if f.RuleID != 3 || !f.Passive || f.WindowBytes != window || f.WindowErrno != 0 || f.Remote.Addr() != b {
		t.Errorf("accepted: %+v", f)
	}
	if got := intOption(t, c, unix.SOL_SOCKET, unix.SO_RCVBUF); got != 2*window {
		t.Errorf("accepted: receive buffer %d, want %d", got, 2*window)
	}
	transfer(t, c, 1<<20)

	c = acceptAt(t, s, a, 7101)
	if got := congestionOf(t, c); got != "reno" {
		t.Errorf("accepted: congestion control %q, want reno", got)
	}
	if f = flowOf(t, l, c, func(f Flow) bool { return true }); f.WindowBytes != 0 {
		t.Errorf("accepted without a window: %+v", f)
	}
}

func TestSocketsWithoutRule(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		before := dialAt(t, s.B4, sinkPort)
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "other", Remote: full(s.B4), Ports: []uint16{idlePort}, Congestion: "reno", WindowBytes: 1 << 20})
		after := dialAt(t, s.B4, sinkPort)
		for name, get := range map[string]func() [2]int{
			"buffers": func() [2]int {
				return [2]int{intOption(t, before, unix.SOL_SOCKET, unix.SO_RCVBUF), intOption(t, after, unix.SOL_SOCKET, unix.SO_RCVBUF)}
			},
			"pacing": func() [2]int {
				return [2]int{intOption(t, before, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE), intOption(t, after, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)}
			},
		} {
			if v := get(); v[0] != v[1] {
				t.Errorf("%s changed: %v", name, v)
			}
		}
		if a, b := congestionOf(t, before), congestionOf(t, after); a != b {
			t.Errorf("congestion control changed from %s to %s", a, b)
		}
		transfer(t, after, 1<<20)
		if flows, err := l.Flows(); err != nil || len(flows) > 0 {
			t.Errorf("telemetry of sockets without a rule: %v %v", flows, err)
		}
		if paths, err := l.Paths(); err != nil || len(paths) > 0 {
			t.Errorf("paths of sockets without a rule: %v %v", paths, err)
		}
	}, nil)
}

func TestTelemetry(t *testing.T) {
	inside(t, lab.Options{Rate: 50e6, RTT: 20 * time.Millisecond, Loss: 0.02, Seed: 7}, func(t *testing.T, s site) {
		l := loadAt(t, s,
			policy.Rule{ID: 1, Name: "four", Remote: netip.PrefixFrom(s.B4, 16), Congestion: "cubic"},
			policy.Rule{ID: 2, Name: "six", Remote: netip.MustParsePrefix("::/0"), Congestion: "cubic"})
		const n = 1 << 20
		for i, b := range s.dests() {
			c := dialAt(t, b, sinkPort)
			sendOnly(t, c, n)
			f := flowOf(t, l, c, func(f Flow) bool { return f.BytesAcked > n/2 })
			if f.RuleID != uint32(i+1) || f.SRTTUs < 15_000 || f.SRTTUs > 400_000 || f.RTTMinUs < 18_000 || f.RTTMinUs > 60_000 ||
				f.Retransmits == 0 || f.SegsOut < n/2/1500 || f.DeliveredBps == 0 || f.DeliveredBps > 50e6 || f.MSSBytes < 1200 {
				t.Errorf("implausible: %+v", f)
			}
			transfer(t, c, 0)
			c.Close()
			gone(t, l)
		}
		// A connect that fails leaves nothing either.
		if c, err := net.Dial("tcp", netip.AddrPortFrom(s.B4, 9).String()); err == nil {
			c.Close()
			t.Error("port 9 answers")
		}
		gone(t, l)
		paths, err := l.Paths()
		if err != nil || len(paths) != len(s.dests()) {
			t.Fatalf("%d paths: %v %v", len(paths), paths, err)
		}
		for i, p := range paths {
			want := netip.PrefixFrom(s.B4, 24).Masked()
			if i == 1 {
				want = netip.PrefixFrom(s.B6, 48).Masked()
			}
			if p.Prefix != want || p.Flows != 1 || p.BytesAcked < n || p.BytesAcked > n+10 || p.Retransmits == 0 ||
				p.SRTTUs < 15_000 || p.RTTMinUs < 18_000 || p.DeliveredBps == 0 || p.BytesReceived < 8 || p.BytesReceived > 10 {
				t.Errorf("path: %+v, want prefix %s and one flow", p, want)
			}
		}
	}, nil)
}

// gone waits until no flow is left.
func gone(t *testing.T, l *Loader) {
	t.Helper()
	var flows []Flow
	for end := time.Now().Add(testkit.Wait(5 * time.Second)); time.Now().Before(end); {
		var err error
		if flows, err = l.Flows(); err != nil {
			t.Fatal(err)
		}
		if len(flows) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("left: %+v", flows)
}
