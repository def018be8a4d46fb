// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

const noRate = -1 // SO_MAX_PACING_RATE of a socket without one

func paceOf(t *testing.T, c *net.TCPConn) int {
	return intOption(t, c, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
}

// comes waits for what callbacks of the kernel bring about, at most so long that a busy machine has no part in it.
func comes(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Errorf("not in time: %s", what)
}

func reserve(t *testing.T, l *Loader, set ...policy.Reserved) {
	t.Helper()
	if err := l.Reserve(set); err != nil {
		t.Fatal(err)
	}
}

// keepSending sends until the test ends.
func keepSending(t *testing.T, c *net.TCPConn) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 16<<10)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); c.SetDeadline(time.Now()); wg.Wait() })
}

// Flows that begin together have equal shares before the first of them sends, and what one leaves the others have.
func TestReservedShares(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		l := loadAt(t, s,
			policy.Rule{ID: 1, Name: "one", Remote: full(s.B4), Window: policy.WindowReserved},
			policy.Rule{ID: 2, Name: "three", Remote: full(s.B4), Ports: []uint16{idlePort}, Window: policy.WindowReserved, Weight: 3})
		r := reserved(s.B4, 40e6, 20*time.Millisecond)
		reserve(t, l, r)
		whole := float64(r.RateBps) * 1448 / 1514 * 0.995
		share := func(c *net.TCPConn) float64 { return float64(paceOf(t, c)) / whole }
		near := func(c *net.TCPConn, want float64) bool { return share(c) > want*0.97 && share(c) < want*1.03 }
		first := dialAt(t, s.B4, sinkPort)
		if !near(first, 1) {
			t.Errorf("alone: rate %d of %.0f", paceOf(t, first), whole)
		}
		keepSending(t, first)
		heavy := dialAt(t, s.B4, idlePort)
		keepSending(t, heavy)
		comes(t, "three quarters for weight 3, a quarter for weight 1", func() bool { return near(heavy, 0.75) && near(first, 0.25) })
		heavy.SetLinger(0)
		heavy.Close()
		comes(t, "what a closed flow leaves", func() bool { return near(first, 1) })
		dialAt(t, s.B4, idlePort)
		comes(t, "what one at rest gives back", func() bool { return near(first, 1) })

		conns := make([]*net.TCPConn, 10)
		for i := range conns {
			conns[i] = dialAt(t, s.B4, sinkPort)
			keepSending(t, conns[i])
		}
		// On a busy machine not all of them always have something to send, and those that have not count less.
		comes(t, "about an eleventh for each", func() bool {
			sum := share(first)
			for _, c := range conns {
				if share(c) < 0.5/11 || share(c) > 2.0/11 {
					return false
				}
				sum += share(c)
			}
			return sum < 1.1
		})
		for i, c := range conns {
			f := flowOf(t, l, c, func(f Flow) bool {
				return f.Reservation == "r-1" && f.CwndMost > 0 && f.CwndMost < 20+uint32(r.BDPBytes()*5/4/1514/2) && f.AdvertiseMost > 0
			})
			if uint64(f.AdvertiseMost) > r.BDPBytes() {
				t.Errorf("flow %d: advertises up to %d bytes", i, f.AdvertiseMost)
			}
		}
		use := l.ReservedUse()
		if len(use) != 1 || use[0].ID != "r-1" || use[0].Flows < 11 || len(use[0].PerFlow) != use[0].Flows {
			t.Errorf("use: %+v", use)
		}
		for _, c := range conns[1:] {
			c.SetLinger(0)
			c.Close()
		}
		comes(t, "what closed flows leave", func() bool { return share(conns[0]) > 0.3 })
	}, nil)
}

// At the end flows that send and flows at rest lose their rate, keep their buffers, and the algorithm they had goes on.
func TestReservationEnds(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		before := maximaNow(t)
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "path", Remote: full(s.B4), Window: policy.WindowReserved, Congestion: "cubic"})
		other := netip.MustParsePrefix("192.0.2.0/24")
		r := reserved(s.B4, 40e6, 20*time.Millisecond)
		reserve(t, l, r, policy.Reserved{ID: "r-2", Remote: []netip.Prefix{other}, RateBps: 1 << 20, RTT: time.Second})
		busy, rest := dialAt(t, s.B4, sinkPort), dialAt(t, s.B4, sinkPort)
		keepSending(t, busy)
		sendOnly(t, rest, 1000)
		flowOf(t, l, busy, func(f Flow) bool { return f.Reservation == "r-1" && f.BytesAcked > 1<<20 })
		buffer := intOption(t, rest, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if buffer < 2*int(r.BDPBytes()) {
			t.Errorf("receive buffer %d, W is %d", buffer, r.BDPBytes())
		}

		// Another reservation takes the place of the first: nothing is cut.
		r.ID, r.RateBps = "r-3", r.RateBps/2
		reserve(t, l, r)
		comes(t, "the rate of the next reservation", func() bool { p := paceOf(t, busy); return p > 0 && p < int(r.RateBps) })
		f := flowOf(t, l, busy, func(f Flow) bool { return f.Reservation == "r-3" })
		if f.WindowWhy != "" {
			t.Errorf("taken over: %+v", f)
		}

		reserve(t, l)
		for _, c := range []*net.TCPConn{busy, rest} {
			comes(t, "no rate", func() bool { return paceOf(t, c) == noRate })
			if got := intOption(t, c, unix.SOL_SOCKET, unix.SO_RCVBUF); got != buffer {
				t.Errorf("the buffer became %d, it was %d", got, buffer)
			}
		}
		f = flowOf(t, l, busy, func(f Flow) bool { return f.Reservation == "" && f.Congestion == "cubic" && f.WindowWhy != "" })
		if f.ShareBps != 0 {
			t.Errorf("ended: %+v", f)
		}
		later := dialAt(t, s.B4, sinkPort)
		if paceOf(t, later) != noRate || flowOf(t, l, later, established).WindowBytes != 0 {
			t.Error("a later flow has something of the reservation")
		}

		// A reservation ends by itself, too, and one that begins takes the flows that are there.
		r.Until = time.Now().Add(testkit.Wait(5 * time.Second))
		reserve(t, l, r)
		comes(t, "the rate of a reservation that has begun", func() bool { return paceOf(t, busy) != noRate })
		comes(t, "the end at its time", func() bool { return paceOf(t, busy) == noRate })
		if err := l.Apply(nil, nil); err != nil {
			t.Fatal(err)
		}
		if after := maximaNow(t); after != before {
			t.Errorf("maxima %v, they were %v", after, before)
		}
	}, nil)
}

// With the agent goes all that it set on flows.
func TestReservationEndsWithAgent(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		before := maximaNow(t)
		path := t.TempDir() + "/ledger"
		load := func() (*Loader, *ledger.Ledger) {
			led, err := ledger.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Ledger: led,
				Rules: []policy.Rule{{ID: 1, Name: "path", Remote: full(s.B4), Window: policy.WindowReserved}}})
			if err != nil {
				t.Fatal(err)
			}
			return l, led
		}
		l, led := load()
		reserve(t, l, reserved(s.B4, 40e6, 20*time.Millisecond))
		busy, rest := dialAt(t, s.B4, sinkPort), dialAt(t, s.B4, sinkPort)
		keepSending(t, busy)
		sendOnly(t, rest, 1000)
		if paceOf(t, rest) == noRate {
			t.Fatal("not paced")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []*net.TCPConn{busy, rest} {
			if paceOf(t, c) != noRate {
				t.Errorf("rate %d after the end of the agent", paceOf(t, c))
			}
		}
		if left, err := led.Entries(); len(left) > 0 || err != nil {
			t.Errorf("left in the ledger: %v %v", left, err)
		}
		led.Close()
		if after := maximaNow(t); after != before {
			t.Errorf("maxima %v, they were %v", after, before)
		}
	}, nil)
}

// A listener from before the agent has the window for clients of the path, and stays as it is for others.
func TestListenerBeforeAgent(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err := lc.Listen(t.Context(), "tcp4", "0.0.0.0:7200")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		accept := func() *net.TCPConn {
			t.Helper()
			c, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c.(*net.TCPConn)
		}
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "in", Remote: netip.MustParsePrefix("0.0.0.0/0"), Ports: []uint16{7200}, Window: policy.WindowReserved})
		r := reserved(s.B4, 40e6, 20*time.Millisecond)
		reserve(t, l, r)
		ask := dialAt(t, s.B4, backPort)
		if err := binary.Write(ask, binary.BigEndian, uint16(7200)); err != nil {
			t.Fatal(err)
		}
		c := accept()
		f := flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
		if !f.Passive || f.Reservation != "r-1" || uint64(f.WindowBytes) < r.BDPBytes() || f.InitialPackets == 0 {
			t.Errorf("accepted on the path: %+v", f)
		}
		transfer(t, c, 1<<20)

		near := dialAt(t, netip.MustParseAddr("127.0.0.1"), 7200)
		c = accept()
		f = flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
		if f.Reservation != "" || f.WindowBytes != 0 || f.WindowWhy == "" || paceOf(t, c) != noRate {
			t.Errorf("accepted on the loopback: %+v", f)
		}
		near.Close()
		reserve(t, l)
		dialAt(t, netip.MustParseAddr("127.0.0.1"), 7200).Close()
		if def := readNumbers("/proc/sys/net/ipv4/tcp_rmem"); len(def) == 3 {
			if got := intOption(t, accept(), unix.SOL_SOCKET, unix.SO_RCVBUF); got < int(def[1]) {
				t.Errorf("a listener's buffer became %d", got)
			}
		}
	}, nil)
}

// maximaNow is what of the host a window changes.
func maximaNow(t *testing.T) [2]string {
	t.Helper()
	var out [2]string
	for i, name := range []string{tcpRmem, tcpWmem} {
		v, err := ledger.ReadSysctl(name)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = v
	}
	return out
}

func TestReserveRefuses(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.0/24")
	for name, c := range map[string]struct {
		set  []policy.Reserved
		want string
	}{
		"no id":        {[]policy.Reserved{{Remote: []netip.Prefix{p}, RateBps: 1 << 20, RTT: time.Second}}, "no id"},
		"no end":       {[]policy.Reserved{{ID: "a", RateBps: 1 << 20, RTT: time.Second}}, "no end point"},
		"no rate":      {[]policy.Reserved{{ID: "a", Remote: []netip.Prefix{p}, RTT: time.Second}}, "rate of 0"},
		"no rtt":       {[]policy.Reserved{{ID: "a", Remote: []netip.Prefix{p}, RateBps: 1 << 20}}, "round-trip"},
		"twice":        {[]policy.Reserved{{ID: "a", Remote: []netip.Prefix{p}, RateBps: 1 << 20, RTT: 1e6}, {ID: "a", Remote: []netip.Prefix{p}, RateBps: 1 << 20, RTT: 1e6}}, "given twice"},
		"equal prefix": {[]policy.Reserved{{ID: "a", Remote: []netip.Prefix{p}, RateBps: 1 << 20, RTT: 1e6}, {ID: "b", Remote: []netip.Prefix{p}, RateBps: 1 << 20, RTT: 1e6}}, "both for"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkReserved(c.set); err == nil || !contains(err, c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if err := checkReserved(make([]policy.Reserved, MaxReserved+1)); err == nil {
		t.Error("more than there is room for")
	}
}

func TestStalled(t *testing.T) {
	path := t.TempDir() + "/memory"
	for text, want := range map[string]int{
		"some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=1.00 avg60=0 avg300=0 total=0\n": 125,
		"": 0, "some avg10=x": 0,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := stalled(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
