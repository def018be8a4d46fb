// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
)

// fakeKernel stands for the programs in the kernel: it knows where connections wanted to go because the test tells it.
type fakeKernel struct {
	mu      sync.Mutex
	orig    map[netip.AddrPort]Original
	own     map[uint64]bool
	bypass  map[netip.AddrPort]reason.Code
	up      map[uint32]bool
	spliced map[netip.AddrPort]int
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{orig: map[netip.AddrPort]Original{}, own: map[uint64]bool{}, bypass: map[netip.AddrPort]reason.Code{},
		up: map[uint32]bool{}, spliced: map[netip.AddrPort]int{}}
}

func (k *fakeKernel) TakeOriginal(client netip.AddrPort) (Original, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, ok := k.orig[client]
	delete(k.orig, client)
	return o, ok
}

func (k *fakeKernel) Own(cookie uint64, _ uint32, _ bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own[cookie] = true
	return nil
}

func (k *fakeKernel) Disown(cookie uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.own, cookie)
}

func (k *fakeKernel) Bypass(dst netip.AddrPort, r reason.Code, _ time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bypass[dst] = r
}

func (k *fakeKernel) SetPeer(id uint32, up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.up[id] = up
}

func (k *fakeKernel) SpliceDone(client netip.AddrPort) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spliced[client]++
}

func (k *fakeKernel) isUp(id uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.up[id]
}

func (k *fakeKernel) bypassed(dst netip.AddrPort) reason.Code {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bypass[dst]
}

func (k *fakeKernel) owned() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.own)
}

// agent is an engine with all that belongs to it.
type agent struct {
	*Engine
	t      testing.TB
	kernel *fakeKernel
	logs   *logBuffer
	stop   context.CancelFunc
	done   chan struct{}
}

// logBuffer collects log lines, and shows them when a test fails.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newTestIdentity(t testing.TB) *Identity {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := newIdentity(private)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func newAgent(t testing.TB, name string, cfg Config) *agent {
	t.Helper()
	a := &agent{t: t, kernel: newFakeKernel(), logs: &logBuffer{}, done: make(chan struct{})}
	cfg.Instance = name
	cfg.Kernel = a.kernel
	if cfg.HistoryBytes == 0 {
		cfg.HistoryBytes = 256 << 20
	}
	cfg.Log = slog.New(slog.NewTextHandler(a.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.Identity == nil {
		cfg.Identity = newTestIdentity(t)
	}
	slowly(&cfg.Timeouts)
	e, err := New(cfg)
	if err != nil {
		t.Fatalf("making %s: %v", name, err)
	}
	a.Engine = e
	t.Cleanup(func() {
		a.close()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, a.logs.String())
		}
	})
	return a
}

// slowly lengthens those bounds of waiting which the test has not set itself, on a slow machine.
func slowly(t *Timeouts) {
	usual := Timeouts{}
	usual.setDefaults()
	for _, d := range []struct {
		set   *time.Duration
		usual time.Duration
	}{{&t.Handshake, usual.Handshake}, {&t.Leg, usual.Leg}, {&t.Open, usual.Open}, {&t.Dial, usual.Dial}, {&t.Pong, usual.Pong}} {
		if *d.set == 0 {
			*d.set = testkit.Wait(d.usual)
		}
	}
}

func (a *agent) run() {
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	go func() {
		defer close(a.done)
		a.Run(ctx)
	}()
}

func (a *agent) close() {
	if a.stop == nil {
		a.Close()
		return
	}
	a.stop()
	select {
	case <-a.done:
	case <-time.After(testkit.Wait(20 * time.Second)):
		buf := make([]byte, 1<<20)
		a.t.Errorf("%s does not end\n%s", a.cfg.Instance, buf[:runtime.Stack(buf, true)])
	}
}

// world is two agents that know each other; flows go from near to far.
type world struct {
	t         testing.TB
	near, far *agent
}

func ruleAll(r Rule) RuleFor {
	return func(netip.Addr, uint16) (Rule, bool) { return r, true }
}

// patient gives both ends time: on a busy machine a peer that answers late is not down, and a server that accepts late is there.
func patient(near, far *Config) {
	long := testkit.Wait(time.Minute)
	near.Timeouts = Timeouts{Handshake: long, Turn: long, Open: long, Leg: long, Dial: long, Pong: long}
	far.Timeouts = near.Timeouts
}

// newWorld starts two agents and waits until the near one can steer. change may alter the configurations.
func newWorld(t testing.TB, change func(near, far *Config)) *world {
	t.Helper()
	w := newStoppedWorld(t, change)
	w.far.run()
	w.near.run()
	w.waitUp()
	return w
}

func newStoppedWorld(t testing.TB, change func(near, far *Config)) *world {
	t.Helper()
	w := &world{t: t}
	nearID, farID := newTestIdentity(t), newTestIdentity(t)
	farCfg := Config{Identity: farID, Listen: farAddr + ":0", Peers: []Peer{{ID: 1, Name: "near", Key: nearID.Fingerprint(), Allow: []Allow{
		{Prefix: netip.MustParsePrefix(serverAddr + "/32")}, {Prefix: netip.MustParsePrefix(serverAddr6 + "/128")},
		{Prefix: netip.MustParsePrefix("0.0.0.0/0")},
	}}}}
	rule := Rule{ID: 7, Name: "rule", PeerID: 1}
	nearCfg := Config{Identity: nearID, Listen: nearAddr + ":0", Rules: []Rule{rule}, Peers: []Peer{{ID: 1, Name: "far", Key: farID.Fingerprint()}}}
	if change != nil {
		change(&nearCfg, &farCfg)
	}
	w.far = newAgent(t, "far", farCfg)
	_, _, port := w.far.Ports()
	if nearCfg.Peers[0].Address == "" {
		nearCfg.Peers[0].Address = fmt.Sprintf("%s:%d", farAddr, port)
	}
	w.near = newAgent(t, "near", nearCfg)
	return w
}

func (w *world) waitUp() {
	w.t.Helper()
	waitFor(w.t, "peer up", 20*time.Second, func() bool { return w.near.kernel.isUp(1) })
}

// waitFor waits for what becomes so within the limit on a machine of full speed.
func waitFor(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	limit = testkit.Wait(limit)
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// steer connects as the connect hook would have an application's connection to dst go.
func (w *world) steer(dst netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	conn, err := w.trySteer(dst)
	if err != nil {
		w.t.Fatalf("connecting: %v", err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// steerOrReset connects like steer, to a destination whose connection may be reset at once: so early that connect itself
// reports it. Then there is no connection.
func (w *world) steerOrReset(dst netip.AddrPort) *net.TCPConn {
	w.t.Helper()
	conn, err := w.trySteer(dst)
	switch {
	case errors.Is(err, unix.ECONNRESET):
		return nil
	case err != nil:
		w.t.Fatalf("connecting: %v", err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

func (w *world) trySteer(dst netip.AddrPort) (*net.TCPConn, error) {
	port4, port6, _ := w.near.Ports()
	target := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port4)
	if dst.Addr().Is6() {
		target = netip.AddrPortFrom(netip.IPv6Loopback(), port6)
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return rawControl(raw, func(fd int) error {
			local, err := bindAny(fd, target.Addr())
			if err != nil {
				return err
			}
			w.near.kernel.mu.Lock()
			w.near.kernel.orig[local] = Original{Destination: dst, Source: netip.AddrPortFrom(netip.MustParseAddr(nearAddr), local.Port()), RuleID: 7}
			w.near.kernel.mu.Unlock()
			return nil
		})
	}}
	conn, err := d.Dial("tcp", target.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// bindAny binds a socket to a free port of an address, so that the port is known before the connection is made.
func bindAny(fd int, addr netip.Addr) (netip.AddrPort, error) {
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: netip.MustParseAddr("127.0.0.1").As4()}
	if addr.Is6() {
		sa = &unix.SockaddrInet6{Addr: addr.As16()}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return netip.AddrPort{}, err
	}
	got, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch v := got.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(addr, uint16(v.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(addr, uint16(v.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("socket name is %T", got)
}

var serverPorts atomic.Uint32

// serve runs a server whose connections are given to handle.
func serve(t testing.TB, address string, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	// From below the ports that the kernel gives out: with an agent's own nobody would reach the server through it.
	port := serverPorts.Add(1)
	l, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(10_000+port%20_000)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	return addrPort(l.Addr())
}

// echo sends back what it gets, then ends.
func echo(c *net.TCPConn) {
	io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	c.CloseWrite()
}

// mixed is data of which parts repeat, parts compress and parts do neither.
func mixed(n int, seed uint64) []byte {
	r := mrand.New(mrand.NewPCG(seed, 1))
	out := make([]byte, 0, n)
	for len(out) < n {
		k := min(n-len(out), 1+r.IntN(100_000))
		switch r.IntN(3) {
		case 0:
			b := make([]byte, k)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			out = append(out, b...)
		case 1:
			out = append(out, bytes.Repeat([]byte(fmt.Sprintf("line %d of the text\n", r.Uint32())), k/20+1)[:k]...)
		default:
			if len(out) > 0 {
				from := r.IntN(len(out))
				out = append(out, out[from:min(len(out), from+k)]...)
			}
		}
	}
	return out
}
