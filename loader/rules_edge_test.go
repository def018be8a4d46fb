// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
)

func listenAt(t *testing.T, address string) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

// A window that the host's maximum would shrink is refused, and auto-tuning stays.
func TestWindowIsRefusedRatherThanShrunk(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		plain := dialAt(t, s.B4, sinkPort)
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "huge", Remote: full(s.B4), WindowBytes: 512 << 20, Congestion: "reno"})
		i := slices.IndexFunc(l.Features(), func(f Feature) bool { return f.Name == "window" })
		if f := l.Features()[i]; f.On || !strings.Contains(f.Detail, "huge") || !strings.Contains(f.Remedy, "net.core.rmem_max=536870912") {
			t.Errorf("%+v", f)
		}
		c := dialAt(t, s.B4, sinkPort)
		if a, b := intOption(t, plain, unix.SOL_SOCKET, unix.SO_RCVBUF), intOption(t, c, unix.SOL_SOCKET, unix.SO_RCVBUF); a != b {
			t.Errorf("receive buffer %d without the rule, %d with it", a, b)
		}
		if got := congestionOf(t, c); got != "reno" {
			t.Errorf("the rest of the rule: congestion control %q", got)
		}
	}, nil)
}

// A listener that is older than the agent gives its connections the rule's window, too: nothing has to be set on it.
func TestWindowOfAnOlderListener(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		ln := listenAt(t, netip.AddrPortFrom(s.A4, 7100).String())
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "in", Remote: full(s.B4), Ports: []uint16{7100}, WindowBytes: 90_000, Congestion: "reno"})
		if err := binary.Write(dialAt(t, s.B4, backPort), binary.BigEndian, uint16(7100)); err != nil {
			t.Fatal(err)
		}
		c, err := ln.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f := flowOf(t, l, c, func(Flow) bool { return true })
		if f.WindowErrno != 0 || f.WindowBytes != 90_000 || f.Congestion != "reno" {
			t.Errorf("%+v", f)
		}
	}, nil)
}

// An IPv6 socket that connects to an IPv4 address falls under the rule of that address.
func TestMappedAddressOnAnIPv6Socket(t *testing.T) {
	testkit.NeedIPv6(t)
	inside(t, lossy, func(t *testing.T, s site) {
		l := loadAt(t, s,
			policy.Rule{ID: 1, Name: "four", Remote: full(s.B4), Congestion: "reno", Priority: bpf.PriorityRetransmit},
			policy.Rule{ID: 2, Name: "six", Remote: netip.MustParsePrefix("::/0"), Congestion: "cubic"})
		need(t, l, "marks")
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrInet6{Port: sinkPort, Addr: s.B4.As16()}); err != nil {
			t.Fatal(err)
		}
		if cc, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || strings.TrimRight(cc, "\x00") != "reno" {
			t.Errorf("congestion control %q %v", cc, err)
		}
		b := make([]byte, 1<<20)
		for range 3 {
			for sent := 0; sent < len(b); {
				n, err := unix.Write(fd, b[sent:])
				if err != nil {
					t.Fatal(err)
				}
				sent += n
			}
		}
		eventually(t, "marks", func() bool {
			flows, err := l.Flows()
			return err == nil && len(flows) == 1 && flows[0].Marked > 0
		})
		flows, _ := l.Flows()
		f := flows[0]
		if f.RuleID != 1 || f.Local.Addr() != s.A4 || f.Local.Port() == 0 || f.Remote != netip.AddrPortFrom(s.B4, sinkPort) {
			t.Errorf("%+v", f)
		}
	}, nil)
}

// The same cgroup, another network namespace: not ours.
func TestOtherNamespaceIsUntouched(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "loopback", Remote: netip.MustParsePrefix("127.0.0.0/8"), Congestion: "reno"})
		loop := func() string {
			ln := listenAt(t, "127.0.0.1:0")
			c, err := net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
			if err != nil {
				t.Error(err)
				return ""
			}
			defer ln.Close() // aborts what it has not accepted
			defer c.Close()
			return congestionOf(t, c)
		}
		if got := loop(); got != "reno" {
			t.Fatalf("in this namespace: %q", got)
		}
		done := make(chan string)
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread is of no more use
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Error(err)
				return
			}
			lo, err := netlink.LinkByName("lo")
			if err == nil {
				err = netlink.LinkSetUp(lo)
			}
			if err != nil {
				t.Error(err)
				return
			}
			done <- loop()
		}()
		if got := <-done; got == "reno" || got == "" {
			t.Errorf("in another namespace: %q", got)
		}
		gone(t, l)
	}, nil)
}

// A steered connection is shown with where it wanted to go, and gets none of the rule's options on loopback.
func TestSteeredFlowIsShown(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "dedup", Remote: full(s.B4), Ports: []uint16{sinkPort}, PeerID: 1,
			Congestion: "reno", WindowBytes: 1 << 20, Priority: bpf.PriorityRetransmit})
		need(t, l, "steering-ipv4")
		engine := listenAt(t, "127.0.0.1:0")
		l.SetPeer(1, true)
		if err := l.SetEngine(Engine{Port4: uint16(engine.Addr().(*net.TCPAddr).Port)}); err != nil {
			t.Fatal(err)
		}
		c := dialAt(t, s.B4, sinkPort)
		at, err := engine.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		flows, err := l.Flows()
		if err != nil || len(flows) != 1 {
			t.Fatalf("%+v %v", flows, err)
		}
		f := flows[0]
		if f.Kind != "steered" || f.RuleID != 1 || f.Remote != netip.AddrPortFrom(s.B4, sinkPort) || f.State != "established" ||
			f.Local != at.RemoteAddr().(*net.TCPAddr).AddrPort() || f.Priority != "off" || f.WindowBytes != 0 {
			t.Errorf("%+v", f)
		}
		if got := congestionOf(t, c); got == "reno" {
			t.Error("the rule's congestion control is set on loopback")
		}
		if paths, _ := l.Paths(); len(paths) > 0 {
			t.Errorf("loopback counts as a path: %+v", paths)
		}
		c.Close()
		at.Close()
		gone(t, l)
	}, nil)
}

// Reading goes on while flows come and go.
func TestFlowsWhileTheyVanish(t *testing.T) {
	l := mapsOnly(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := l.maps["tl_flow"].Update(i, bpf.Flow{}, ebpf.UpdateAny); err != nil {
				t.Error(err)
			}
			if i >= 500 {
				_ = l.maps["tl_flow"].Delete(i - 500)
			}
		}
	})
	for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
		if _, err := l.Flows(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

// untilAcknowledged waits until the other end has all that was written.
func untilAcknowledged(c *net.TCPConn) error {
	for end := time.Now().Add(testkit.Wait(10 * time.Second)); time.Now().Before(end); {
		var unacknowledged int
		err := withFD(c, func(fd int) (err error) {
			unacknowledged, err = unix.IoctlGetInt(fd, unix.TIOCOUTQ)
			return err
		})
		if err != nil || unacknowledged == 0 {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("what was written is not acknowledged")
}

// However a connection ends, its entry goes, and its bytes count for the path once.
func TestShortFlowsLeaveNothing(t *testing.T) {
	const bytes = 3000
	flows := uint64(testkit.Count(400, 100))
	inside(t, lan, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "short", Remote: full(s.B4)})
		var wg sync.WaitGroup
		room := make(chan struct{}, 20)
		for i := range flows {
			room <- struct{}{}
			wg.Go(func() {
				defer func() { <-room }()
				c, err := net.Dial("tcp", netip.AddrPortFrom(s.B4, sinkPort).String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				var n int64
				_, err = c.Write(make([]byte, bytes))
				if i%2 == 0 { // a reset once the bytes are acknowledged, or a clean end
					err = errors.Join(err, untilAcknowledged(c.(*net.TCPConn)), c.(*net.TCPConn).SetLinger(0))
				} else if err == nil {
					err = errors.Join(c.(*net.TCPConn).CloseWrite(), binary.Read(c, binary.BigEndian, &n))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		gone(t, l)
		paths, err := l.Paths()
		if err != nil || len(paths) != 1 {
			t.Fatal(paths, err)
		}
		// SYN and FIN take one number each, which the kernel counts as bytes.
		if p := paths[0]; p.Flows != flows || p.BytesAcked < flows*bytes || p.BytesAcked > flows*(bytes+2) || p.SegsOut < flows*4 {
			t.Errorf("%+v", p)
		}
	}, nil)
}
