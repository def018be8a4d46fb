// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

const (
	testPort = 8080
	testPeer = 7
)

// steerEnv is a loader that steers everything on testPort to a stand-in for the engine, with a far server for what goes
// direct. Both say in one line who they are and what they know.
type steerEnv struct {
	t     *testing.T
	l     *Loader
	world *testenv.World
	alive atomic.Bool
	ln4   net.Listener
	ln6   net.Listener // nil where the kernel has no IPv6
}

func newSteerEnv(t *testing.T, change func(*policy.Rule)) *steerEnv {
	t.Helper()
	e := &steerEnv{t: t, world: testenv.NewWorld(t)}
	e.serveFar()
	e.load(change)
	return e
}

func (e *steerEnv) serveFar() {
	e.world.InFar(func() {
		far := []string{testenv.Far4, testenv.RouterLink4}
		if testkit.IPv6() == nil {
			far = append(far, testenv.Far6)
		}
		for _, a := range far {
			e.serve(listen(e.t, a, testPort), func(c net.Conn) string { return "direct " + c.RemoteAddr().String() })
		}
	})
}

// load attaches everything and starts the stand-in.
func (e *steerEnv) load(change func(*policy.Rule)) {
	t := e.t
	t.Helper()
	rules := []policy.Rule{}
	for i, remote := range []string{"0.0.0.0/0", "::/0"} {
		r := policy.Rule{ID: uint32(i + 1), Remote: netip.MustParsePrefix(remote), Ports: []uint16{testPort},
			PeerID: testPeer, PeerName: "far", Splice: policy.SpliceOff}
		if change != nil {
			change(&r)
		}
		rules = append(rules, r)
	}
	var err error
	e.l, err = Load(t.Context(), Options{Instance: "test", Cgroup: testenv.Cgroup(), BPFFS: t.TempDir(), Rules: rules,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.l.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	for _, name := range []string{"steering-ipv4", "steering-ipv6"} {
		if !e.l.has(name) && (name == "steering-ipv4" || testkit.IPv6() == nil) {
			t.Fatalf("%s is off: %+v", name, e.l.Features())
		}
	}
	e.startEngine()
}

func (e *steerEnv) startEngine() {
	t := e.t
	e.ln4 = listen(t, "127.0.0.1", 0)
	if testkit.IPv6() == nil {
		e.ln6 = listen(t, "::1", 0)
	}
	answer := func(c net.Conn) string {
		o, ok := e.l.TakeOriginal(c.RemoteAddr().(*net.TCPAddr).AddrPort())
		if !ok {
			return "engine none"
		}
		return fmt.Sprintf("engine %s %s rule %d", o.Destination, o.Source.Addr(), o.RuleID)
	}
	e.serve(e.ln4, answer)
	if e.ln6 != nil {
		e.serve(e.ln6, answer)
	}
	e.l.SetPeer(testPeer, true)
	e.alive.Store(true)
	if err := e.l.SetEngine(Engine{Port4: portOf(e.ln4), Port6: portOf(e.ln6), PeerPort: 4820}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.l.Run(ctx, e.alive.Load) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("running: %v", err)
		}
	})
}

func listen(t *testing.T, addr string, port int) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(addr, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// portOf is 0 of no listener.
func portOf(ln net.Listener) uint16 {
	if ln == nil {
		return 0
	}
	return uint16(ln.Addr().(*net.TCPAddr).Port)
}

// serve answers each connection with one line.
func (e *steerEnv) serve(ln net.Listener, answer func(net.Conn) string) {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, answer(c))
				io.Copy(io.Discard, c) // until the client has read and closed
			}()
		}
	}()
}

// client is a real socket: what it sees is what applications see.
type client struct {
	fd  int
	err error // of connect
}

// dial makes a socket of a family, prepares it, and connects.
func dial(t *testing.T, family int, dst string, port uint16, prepare ...func(fd int) error) *client {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, fd, family, dst, port, prepare...)
}

func connect(t *testing.T, fd, family int, dst string, port uint16, prepare ...func(fd int) error) *client {
	t.Helper()
	t.Cleanup(func() { unix.Close(fd) })
	for _, p := range prepare {
		if err := p(fd); err != nil {
			t.Fatal(err)
		}
	}
	tv := unix.NsecToTimeval(testkit.Wait(5 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return &client{fd, unix.Connect(fd, sockaddr(family, dst, port))}
}

// sockaddr puts an IPv4 address into an AF_INET6 socket's address as a mapped one.
func sockaddr(family int, dst string, port uint16) unix.Sockaddr {
	a := netip.MustParseAddr(dst)
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}

// read reads once. A socket with a time limit is not read on after a signal, and Go's scheduler sends some.
func read(fd int, b []byte) (int, error) {
	for {
		if n, err := unix.Read(fd, b); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// line reads what the other end says of itself.
func (c *client) line(t *testing.T) string {
	t.Helper()
	if c.err != nil {
		return "connect: " + c.err.Error()
	}
	buf := make([]byte, 200)
	n, err := read(c.fd, buf)
	if err != nil {
		return "read: " + err.Error()
	}
	return strings.TrimSpace(string(buf[:n]))
}

func (c *client) peer(t *testing.T) string { return name(t, unix.Getpeername, c.fd) }

func (c *client) local(t *testing.T) (addr string, port uint16) {
	t.Helper()
	a, err := netip.ParseAddrPort(name(t, unix.Getsockname, c.fd))
	if err != nil {
		t.Fatal(err)
	}
	return a.Addr().String(), a.Port()
}

func name(t *testing.T, get func(int) (unix.Sockaddr, error), fd int) string {
	t.Helper()
	sa, err := get(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	}
	return fmt.Sprintf("%T", sa)
}

// counts returns how often a reason was given.
func (e *steerEnv) counts(r reason.Code) uint64 {
	e.t.Helper()
	counts, err := e.l.ReasonCounts()
	if err != nil {
		e.t.Fatal(err)
	}
	return counts[r]
}

// eventually waits for what the kernel does in its own time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := testkit.Wait(10 * time.Second)
	for deadline := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", limit, what)
		}
	}
}

func cookieOf(t *testing.T, fd int) uint64 {
	t.Helper()
	c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func bind(family int, addr string) func(int) error {
	return func(fd int) error { return unix.Bind(fd, sockaddr(family, addr, 0)) }
}
