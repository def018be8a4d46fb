// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// lossy gives each transfer of the tests below some hundred retransmissions.
var lossy = lab.Options{Rate: 100e6, RTT: 4 * time.Millisecond, Loss: 0.03, Seed: 3}

func TestEveryRetransmissionIsMarked(t *testing.T) {
	bytes := int(testkit.Size(6<<20, 4<<20)) // to each address
	few := uint64(50 * bytes / (6 << 20))    // lost of them at least
	inside(t, lossy, func(t *testing.T, s site) {
		l := loadAt(t, s, s.within(
			policy.Rule{ID: 1, Name: "four", Remote: netip.PrefixFrom(s.B4, 24), Priority: bpf.PriorityRetransmit, Congestion: "cubic"},
			policy.Rule{ID: 2, Name: "six", Remote: netip.PrefixFrom(s.B6, 64), Priority: bpf.PriorityRetransmit, Congestion: "bbr"})...)
		need(t, l, "marks")
		retransmits, marked := uint64(0), uint64(0)
		for _, b := range s.dests() {
			transfer(t, dialAt(t, b, sinkPort), bytes)
		}
		gone(t, l)
		paths, err := l.Paths()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			retransmits += p.Retransmits
			if p.Retransmits < few {
				t.Errorf("too few retransmissions for a judgement: %+v", p)
			}
		}
		var i bpf.Iface
		if err := l.maps["tl_iface"].Lookup(ifindex(t, "wan0"), &i); err != nil {
			t.Fatal(err)
		}
		if marked = i.Marked; marked == 0 || marked > retransmits || i.L2Bytes != 0 {
			t.Errorf("%d packets marked, %d segments sent again, interface %+v", marked, retransmits, i)
		}
	}, func(t *testing.T, l *lab.Lab) {
		st := l.Link.AB.Stats()
		t.Logf("on the wire: %+v", st)
		if st.Retransmits < 2*few*uint64(len(l.B.Addrs())) || st.RetransmitsMarked != st.Retransmits || st.FirstMarked != 0 {
			t.Errorf("%d of %d retransmissions marked, %d first transmissions marked", st.RetransmitsMarked, st.Retransmits, st.FirstMarked)
		}
	})
}

func TestNothingIsMarkedWithoutPriority(t *testing.T) {
	inside(t, lossy, func(t *testing.T, s site) {
		l := loadAt(t, s, s.within(
			policy.Rule{ID: 1, Name: "off", Remote: full(s.B4), Congestion: "cubic"},
			policy.Rule{ID: 2, Name: "elsewhere", Remote: full(s.B6), Ports: []uint16{idlePort}, Priority: bpf.PriorityRetransmit})...)
		for _, b := range s.dests() {
			transfer(t, dialAt(t, b, sinkPort), 3<<20)
		}
		gone(t, l)
	}, func(t *testing.T, l *lab.Lab) {
		if st := l.Link.AB.Stats(); st.Retransmits < 50 || st.RetransmitsMarked+st.FirstMarked != 0 {
			t.Errorf("on the wire: %+v", st)
		}
	})
}

// A leg is marked from its handshake on if any rule asks for marks, whichever end connected, and as the rule says once it
// carries a flow.
func TestLegsAreMarked(t *testing.T) {
	const legPort = 7200
	inside(t, lossy, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 5, Name: "steered", Remote: full(s.B4), Ports: []uint16{9999}, Priority: bpf.PriorityRetransmit, PeerID: 3})
		need(t, l, "marks")
		if err := l.SetEngine(Engine{PeerPort: legPort}); err != nil {
			t.Fatal(err)
		}
		dialled := dialOwn(t, l, s.B4, true)
		server := dialOwn(t, l, s.B4, false)
		accepted := acceptAt(t, s, s.A4, legPort)
		own := func(leg *net.TCPConn, rule uint32) {
			cookie := option(t, leg, func(fd int) (uint64, error) { return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE) })
			if err := l.Own(cookie, rule, true); err != nil {
				t.Fatal(err)
			}
		}
		own(accepted, 0) // as the engine does with each it accepts
		for _, leg := range []*net.TCPConn{dialled, accepted} {
			f := flowOf(t, l, leg, func(f Flow) bool { return f.State == "established" })
			if f.Kind != "leg" || f.RuleID != 0 || f.PeerID != 0 {
				t.Errorf("a warm leg: %+v", f)
			}
			sendOnly(t, leg, 1<<20)
			if f := flowOf(t, l, leg, func(f Flow) bool { return f.Retransmits > 5 && f.Marked > 5 }); f.RuleID != 0 {
				t.Errorf("a leg that carries no flow yet: %+v", f)
			}
			own(leg, 5)
			sendOnly(t, leg, 2<<20)
			f = flowOf(t, l, leg, func(f Flow) bool { return f.Marked > 0 })
			if f.RuleID != 5 || f.PeerID != 3 || f.Priority != "retransmit" {
				t.Errorf("a leg in use: %+v", f)
			}
			transfer(t, leg, 0)
		}
		sendOnly(t, server, 2<<20)
		if f := flowOf(t, l, server, func(f Flow) bool { return f.Retransmits > 5 }); f.Kind != "dialled" || f.Marked != 0 {
			t.Errorf("a dialled destination: %+v", f)
		}
		transfer(t, server, 0)
		gone(t, l)
		left, err := snapshot[uint64, bpf.Own](l.maps["tl_own"])
		if err != nil || len(left) > 0 {
			t.Errorf("left of own sockets: %v %v", left, err)
		}
		paths, err := l.Paths()
		if err != nil || len(paths) != 1 || paths[0].PeerID != 3 || paths[0].Flows != 2 || paths[0].BytesAcked < 3<<20 || paths[0].BytesAcked > 6<<20 {
			t.Errorf("paths: %+v %v", paths, err)
		}
	}, func(t *testing.T, l *lab.Lab) {
		if st := l.Link.AB.Stats(); st.RetransmitsMarked == 0 || st.RetransmitsMarked == st.Retransmits || st.FirstMarked != 0 {
			t.Errorf("on the wire: %+v", st)
		}
	})
}

// dialOwn connects to the sink as the engine does.
func dialOwn(t *testing.T, l *Loader, a netip.Addr, leg bool) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			var cookie uint64
			if cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE); err == nil {
				err = l.Own(cookie, 0, leg)
			}
		})
		return errors.Join(cerr, err)
	}}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, sinkPort).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func TestEarlySlowStartIsMarked(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "start", Remote: full(s.B4), Priority: bpf.PrioritySlowStart, Congestion: "cubic"})
		need(t, l, "marks")
		c := dialAt(t, s.B4, sinkPort)
		transfer(t, c, 10_000) // less than an initial window: nothing but slow start
		gone(t, l)
	}, func(t *testing.T, l *lab.Lab) {
		// All with data, SYN or FIN: the SYN, at least 7 segments, the FIN.
		if st := l.Link.AB.Stats(); st.FirstMarked < 8 || st.FirstMarked != st.DataSegments-st.Retransmits {
			t.Errorf("on the wire: %+v", st)
		}
	})
}

func ifindex(t *testing.T, name string) uint32 {
	t.Helper()
	i, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(i.Index)
}

// attachedTo returns the interfaces that tl_iface names.
func attachedTo(t *testing.T, l *Loader) []uint32 {
	t.Helper()
	m, err := snapshot[uint32, bpf.Iface](l.maps["tl_iface"])
	if err != nil {
		t.Fatal(err)
	}
	out := keys(m)
	slices.Sort(out)
	return out
}

func TestInterfacesAreFollowed(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "net", Remote: netip.MustParsePrefix("198.51.100.0/24"), Priority: bpf.PriorityRetransmit})
		need(t, l, "marks")
		if got := attachedTo(t, l); len(got) != 0 {
			t.Fatalf("attached to %v though no route leads to the rule's prefix", got)
		}
		go l.Run(t.Context(), func() bool { return true })
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "tl0"}, PeerName: "tl1"}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tl0", "tl1"} {
			nl, err := netlink.LinkByName(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkSetUp(nl); err != nil {
				t.Fatal(err)
			}
		}
		route := &netlink.Route{LinkIndex: int(ifindex(t, "tl0")), Dst: &net.IPNet{IP: net.IPv4(198, 51, 100, 128).To4(), Mask: net.CIDRMask(25, 32)}}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new route's interface", func() bool { return slices.Equal(attachedTo(t, l), []uint32{ifindex(t, "tl0")}) })
		var i bpf.Iface
		if err := l.maps["tl_iface"].Lookup(ifindex(t, "tl0"), &i); err != nil || i.L2Bytes != 14 {
			t.Errorf("%+v %v", i, err)
		}
		if err := netlink.LinkDel(veth); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the interface is forgotten", func() bool { return len(attachedTo(t, l)) == 0 })
	}, nil)
}

func TestNamedInterfaces(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		led := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
		l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Interfaces: []string{"wan0", "lo", "absent"}, Ledger: led})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		need(t, l, "marks")
		if got := attachedTo(t, l); !slices.Equal(got, []uint32{ifindex(t, "wan0")}) {
			t.Errorf("attached to %v", got)
		}
		i := slices.IndexFunc(l.Features(), func(f Feature) bool { return f.Name == "marks" })
		if f := l.Features()[i]; !f.On || !strings.Contains(f.Detail, "wan0") || !strings.Contains(f.Detail, "no interface absent") {
			t.Errorf("%+v", f)
		}
	}, nil)
}

func TestTowards(t *testing.T) {
	route := func(dst string, link int) netlink.Route {
		p := netip.MustParsePrefix(dst)
		return netlink.Route{Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
			LinkIndex: link, Table: 254, Type: 1, Family: map[bool]int{true: netlink.FAMILY_V4, false: netlink.FAMILY_V6}[p.Addr().Is4()]}
	}
	n := network{routes: []netlink.Route{route("0.0.0.0/0", 2), route("10.0.0.0/8", 3), route("10.1.0.0/16", 4), route("10.1.2.0/24", 5), route("2001:db8::/32", 6)}}
	for prefix, want := range map[string][]int{
		"0.0.0.0/0":       {2, 3, 4, 5},
		"192.0.2.0/24":    {2},
		"10.1.0.0/16":     {4, 5},
		"10.1.2.128/25":   {5},
		"10.0.0.0/7":      {2, 3, 4, 5},
		"10.2.0.0/16":     {3},
		"2001:db8:1::/48": {6},
		"2001:db9::/32":   nil,
		"::/0":            {6},
	} {
		got := slices.Sorted(func(yield func(int) bool) {
			for i := range n.towards([]netip.Prefix{netip.MustParsePrefix(prefix)}) {
				if !yield(i) {
					return
				}
			}
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: interfaces %v, want %v", prefix, got, want)
		}
	}
}
