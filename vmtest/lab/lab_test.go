// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// ownerEnv makes the test binary a process that owns a lab and waits to be killed.
const ownerEnv = "LAB_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		ownLab()
	}
	os.Exit(m.Run())
}

func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	testkit.NeedRoot(t)
	if testkit.IPv6() != nil {
		o.NoIPv6 = true
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), l.Link.Err()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// emulations runs f with each.
func emulations(t *testing.T, f func(t *testing.T, e Emulation)) {
	t.Run("in-process", func(t *testing.T) { f(t, InProcess) })
	t.Run("in-kernel", func(t *testing.T) {
		needNetem(t)
		f(t, InKernel)
	})
}

// families runs f for each address of site B.
func families(t *testing.T, l *Lab, f func(t *testing.T, b netip.Addr)) {
	t.Run("ipv4", func(t *testing.T) { f(t, l.B.Addr4) })
	t.Run("ipv6", func(t *testing.T) {
		testkit.NeedIPv6(t)
		f(t, l.B.Addr6)
	})
}

// serve opens a listener at site B and handles each connection in a goroutine.
func serve(t *testing.T, l *Lab, addr netip.Addr, handle func(net.Conn)) string {
	t.Helper()
	ln, err := l.B.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, l *Lab, addr string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Wait(20*time.Second))
	defer cancel()
	c, err := l.A.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestExactRTT(t *testing.T) {
	const rtt = 80 * time.Millisecond
	testkit.NeedTime(t)
	l := newLab(t, Options{RTT: rtt})
	families(t, l, func(t *testing.T, addr netip.Addr) {
		to := serve(t, l, addr, func(net.Conn) {})
		best := time.Hour
		for range 5 {
			start := time.Now()
			dial(t, l, to).Close()
			best = min(best, time.Since(start))
		}
		if best < rtt || best > 2*rtt {
			t.Errorf("connect took %v on a link of %v", best, rtt)
		}
	})
}

func TestExactDeliveryWithLoss(t *testing.T) {
	data := make([]byte, testkit.Size(8<<20, 4<<20))
	segments := uint64(len(data) / wanMTU)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	want := sha256.Sum256(data)

	l := newLab(t, Options{Rate: 200e6, RTT: 4 * time.Millisecond, Loss: 0.01, Seed: 3})
	families(t, l, func(t *testing.T, addr netip.Addr) {
		before := l.Link.Stats()
		to := serve(t, l, addr, func(c net.Conn) { _, _ = c.Write(data) })
		h := sha256.New()
		if n, err := io.Copy(h, dial(t, l, to)); err != nil || n != int64(len(data)) {
			t.Fatalf("%d bytes arrived: %v", n, err)
		}
		if [32]byte(h.Sum(nil)) != want {
			t.Error("what arrived is not what was sent")
		}
		st := l.Link.Stats().Since(before)
		if st.Lost < segments/270 || st.Retransmits == 0 {
			t.Errorf("%d segments lost, %d sent again, of %d", st.Lost, st.Retransmits, st.Segments)
		}
		if st.WriteErrors != 0 || st.PartlyNew != 0 {
			t.Errorf("%d packets refused, %d partly new", st.WriteErrors, st.PartlyNew)
		}
		if st.Bytes < uint64(len(data)) {
			t.Errorf("%d bytes on the link for %d", st.Bytes, len(data))
		}
		t.Logf("%+v, late on average %v", st, st.LateAvg())
	})
}

func TestNothingSentTwiceWithoutLoss(t *testing.T) {
	l := newLab(t, Options{Rate: 100e6, RTT: 10 * time.Millisecond, QueueBDP: 100})
	// A busy machine delivers late. Senders that wait long do not take late for lost.
	for _, s := range []*Site{l.A, l.B} {
		patient(t, s)
	}
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = c.Write(make([]byte, testkit.Size(4<<20, 1<<20))) })
	if _, err := io.Copy(io.Discard, dial(t, l, to)); err != nil {
		t.Fatal(err)
	}
	if st := l.Link.Stats(); st.Lost+st.QueueDrops+st.DownDrops != 0 || st.Retransmits > 5 {
		t.Errorf("lost or counted as sent twice on a clean link: %+v", st)
	}
}

// patient has a site's senders wait 20 s for an acknowledgement, and probe no sooner.
func patient(t *testing.T, s *Site) {
	t.Helper()
	err := s.Do(func() error { return sysctl("net/ipv4/tcp_early_retrans", "0") })
	if err != nil {
		t.Fatal(err)
	}
	gateway := hostIn(s.Net4, s.gateway).String()
	cmd := s.Command(t.Context(), testkit.NeedProgram(t, "ip"),
		"route", "replace", s.other.Net4.String(), "via", gateway, "dev", wanDevice, "onlink", "rto_min", "20s")
	if _, err := s.Output(cmd); err != nil {
		t.Fatal(err)
	}
}

func TestExactRate(t *testing.T) {
	const rate, bytes = 40e6, 8 << 20
	testkit.NeedTime(t)
	l := newLab(t, Options{Rate: rate, RTT: 20 * time.Millisecond})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = c.Write(make([]byte, bytes)) })
	start := time.Now()
	if _, err := io.Copy(io.Discard, dial(t, l, to)); err != nil {
		t.Fatal(err)
	}
	got := float64(bytes) * 8 / time.Since(start).Seconds()
	if got > rate || got < rate/4 {
		t.Errorf("%.1f Mbit/s on a link of %.0f", got/1e6, rate/1e6)
	}
}

func TestChangedLive(t *testing.T) { emulations(t, changedLive) }

func changedLive(t *testing.T, e Emulation) {
	l := newLab(t, Options{Emulation: e})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = io.Copy(c, c) })
	c := dial(t, l, to)
	echo := func(wait time.Duration) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := echo(testkit.Wait(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	l.Link.SetDown(true)
	if err := echo(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("something came over a link that is down: %v", err)
	}
	l.Link.SetDown(false)
	l.Link.SetRTT(60 * time.Millisecond)
	l.Link.SetRate(5e6)
	l.Link.SetLoss(0)
	start := time.Now()
	if err := echo(testkit.Wait(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Errorf("an answer after %v, over 60 ms", d)
	}
	// Only in-process is it known what was sent again.
	if st := l.Link.Stats(); st.DownDrops == 0 || st.Retransmits == 0 && e == InProcess {
		t.Errorf("nothing was lost or sent again: %+v", st)
	}
}

func TestTwoLabsAtOnce(t *testing.T) {
	one, two := newLab(t, Options{}), newLab(t, Options{})
	for _, l := range []*Lab{one, two} {
		to := serve(t, l, l.B.Addr4, func(c net.Conn) { fmt.Fprint(c, l.B.Cgroup) })
		b, err := io.ReadAll(dial(t, l, to))
		if err != nil || string(b) != l.B.Cgroup {
			t.Errorf("read %q: %v", b, err)
		}
	}
}

func TestCgroupParent(t *testing.T) {
	outer := newLab(t, Options{NoIPv6: true})
	l := newLab(t, Options{NoIPv6: true, CgroupParent: outer.A.CgroupPath})
	if !strings.HasPrefix(l.B.CgroupPath, outer.A.CgroupPath+"/") || !strings.HasSuffix(l.B.Cgroup, l.B.CgroupPath) {
		t.Errorf("cgroup %s, below the mount %s", l.B.Cgroup, l.B.CgroupPath)
	}
	if l.A.Addr6.IsValid() {
		t.Errorf("a lab without IPv6 has %s", l.A.Addr6)
	}
}

func TestNoIPv4(t *testing.T) { emulations(t, withoutIPv4) }

func withoutIPv4(t *testing.T, e Emulation) {
	testkit.NeedIPv6(t)
	l := newLab(t, Options{Emulation: e, NoIPv4: true})
	if l.A.Addr4.IsValid() || len(l.A.Addrs()) != 1 {
		t.Errorf("a lab without IPv4 has %v", l.A.Addrs())
	}
	for _, name := range []string{"127.0.0.1:0", "0.0.0.0:0"} {
		c, err := l.A.Dial(t.Context(), "tcp4", strings.Replace(name, ":0", ":9", 1))
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("connecting to %s over IPv4: %v", name, err)
		}
	}
	to := serve(t, l, l.B.Addr6, func(c net.Conn) { fmt.Fprint(c, "here") })
	if b, err := io.ReadAll(dial(t, l, to)); string(b) != "here" {
		t.Errorf("read %q: %v", b, err)
	}
	if _, addr, err := l.A.NewNamespace(); err != nil || !addr.Is6() {
		t.Errorf("an inner namespace at %v: %v", addr, err)
	}
}

func TestMTU(t *testing.T) { emulations(t, largePackets) }

// Segments are as large as the MTU lets them be, and arrive.
func largePackets(t *testing.T, e Emulation) {
	const mtu, headers = 9000, 20 + 20 + 12 // IPv4, TCP and its time stamps
	l := newLab(t, Options{Emulation: e, MTU: mtu, NoIPv6: true})
	to := serve(t, l, l.B.Addr4, func(c net.Conn) { _, _ = c.Write(make([]byte, 1<<20)) })
	c := dial(t, l, to)
	if b, err := io.ReadAll(c); len(b) != 1<<20 || err != nil {
		t.Errorf("%d bytes arrived: %v", len(b), err)
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	_ = raw.Control(func(fd uintptr) { size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	if size != mtu-headers || err != nil {
		t.Errorf("a segment carries %d bytes, want %d: %v", size, mtu-headers, err)
	}
	if st := l.Link.BA.Stats(); st.Segments > 2*(1<<20)/(mtu-headers) {
		t.Errorf("%d segments from the server", st.Segments)
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{Loss: 2}, {Loss: math.NaN()}, {RTT: -1}, {QueueBDP: -1}, {DSCP: 64}, {NoIPv4: true, NoIPv6: true},
		{MTU: -1}, {MTU: 1279}, {MTU: 65521}, {Burst: 0.5}, {Burst: -2}, {Burst: 1e9}, {Loss: 0.9, Burst: 2}, {Emulation: 2},
		{Emulation: InKernel, Trace: &Trace{at: []uint32{1}}}} {
		if l, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
			l.Close()
		}
	}
}

func TestChildIsInNamespaceAndCgroup(t *testing.T) { emulations(t, childIsInNamespaceAndCgroup) }

func childIsInNamespaceAndCgroup(t *testing.T, e Emulation) {
	l := newLab(t, Options{Emulation: e})
	inner, addr, err := l.A.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]*Namespace{"site": l.A.Namespace, "inner": inner} {
		t.Run(name, func(t *testing.T) {
			out, err := n.Output(n.Command(t.Context(), "sh", "-c", "readlink /proc/self/ns/net; grep ^0:: /proc/self/cgroup"))
			if err != nil {
				t.Fatal(err)
			}
			ns, err := os.Readlink(n.NetnsPath())
			if err != nil {
				t.Fatal(err)
			}
			if want := ns + "\n0::" + n.CgroupPath + "\n"; string(out) != want {
				t.Errorf("the child is in %q, not %q", out, want)
			}
		})
	}
	t.Run("over the link", func(t *testing.T) {
		families(t, l, func(t *testing.T, to netip.Addr) {
			at := serve(t, l, to, func(c net.Conn) { fmt.Fprint(c, c.RemoteAddr()) })
			c, err := inner.Dial(t.Context(), "tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			b, _ := io.ReadAll(c)
			if to.Is4() && !strings.HasPrefix(string(b), addr.String()+":") {
				t.Errorf("the server saw %s, not %s", b, addr)
			}
		})
	})
}

func TestAddAddress(t *testing.T) { emulations(t, addAddresses) }

func addAddresses(t *testing.T, e Emulation) {
	l := newLab(t, Options{Emulation: e})
	for _, s := range []string{"10.81.2.9/24", "198.51.100.7/24", "2001:db8:7::7/64"} {
		p := netip.MustParsePrefix(s)
		if p.Addr().Is6() && testkit.IPv6() != nil {
			continue
		}
		if err := l.B.AddAddress(p); err != nil {
			t.Fatal(err)
		}
		to := serve(t, l, p.Addr(), func(c net.Conn) { fmt.Fprint(c, "here") })
		if b, err := io.ReadAll(dial(t, l, to)); string(b) != "here" {
			t.Errorf("%s: read %q: %v", s, b, err)
		}
	}
}
