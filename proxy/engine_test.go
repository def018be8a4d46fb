// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
)

// TestSlowReader: an application that does not read holds up the server, not the agents' memory.
func TestSlowReader(t *testing.T) {
	w := newWorld(t, nil)
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	var wrote int64
	stalled := make(chan struct{})
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		for {
			c.SetWriteDeadline(time.Now().Add(testkit.Wait(2 * time.Second)))
			n, err := c.Write(chunk)
			wrote += int64(n)
			if err != nil || wrote > 1<<30 {
				close(stalled)
				io.Copy(io.Discard, c)
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := w.steer(dst)
	<-stalled
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("the server wrote %d MiB, the heap grew by %d MiB", wrote>>20, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20)
	if wrote > 64<<20 {
		t.Errorf("no back-pressure: %d bytes taken", wrote)
	}
	for _, f := range w.near.Flows() {
		if taken := int64(8 << 20); f.RawReceived > windowMax+taken { // by the application's sockets
			t.Errorf("%d bytes received, the window is at most %d", f.RawReceived, windowMax)
		}
	}
	got := make([]byte, len(chunk))
	for i := int64(0); i < wrote/int64(len(chunk)); i++ {
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, chunk) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

// TestResetWithoutCredit: a reset is seen although nothing is read for lack of credit.
func TestResetWithoutCredit(t *testing.T) {
	w := newWorld(t, nil)
	ended := make(chan error, 1)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		raw, _ := c.SyscallConn()
		s := &sock{TCPConn: c, raw: raw}
		ended <- s.watch()
	})
	c := w.steer(dst)
	c.SetWriteDeadline(time.Now().Add(testkit.Wait(time.Second)))
	for chunk := make([]byte, 1<<20); ; {
		if _, err := c.Write(chunk); err != nil {
			break
		}
	}
	abort(c)
	select {
	case err := <-ended:
		if !isReset(err) {
			t.Errorf("server saw %v", err)
		}
	case <-time.After(testkit.Wait(20 * time.Second)):
		t.Error("the server saw nothing")
	}
}

func TestIdleFlowLives(t *testing.T) {
	w := newWorld(t, func(near, far *Config) {
		near.Timeouts.Ping, near.Timeouts.Pong = testkit.Wait(50*time.Millisecond), testkit.Wait(300*time.Millisecond)
		far.Timeouts.Pong = testkit.Wait(300 * time.Millisecond)
		near.Timeouts.LegAge, near.Timeouts.Splice = testkit.Wait(100*time.Millisecond), testkit.Wait(200*time.Millisecond)
	})
	c := w.steer(serve(t, serverAddr, echo))
	buf := make([]byte, 1)
	for range 3 {
		c.Write([]byte("a"))
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
		time.Sleep(testkit.Wait(700 * time.Millisecond))
	}
	w.near.kernel.mu.Lock()
	defer w.near.kernel.mu.Unlock()
	if n := w.near.kernel.spliced[addrPort(c.LocalAddr())]; n == 0 {
		t.Error("the application's end stayed in the sockmap")
	}
}

func TestDrain(t *testing.T) {
	w := newWorld(t, nil)
	c := w.steer(serve(t, serverAddr, echo))
	c.Write([]byte("a"))
	io.ReadFull(c, make([]byte, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := w.far.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("drained with a live flow: %v", err)
	}
	waitFor(t, "near notices", 20*time.Second, func() bool { return !w.near.kernel.isUp(1) })
	go func() {
		time.Sleep(100 * time.Millisecond)
		c.CloseWrite()
	}()
	if err := w.far.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestCloseResets(t *testing.T) {
	for _, who := range []string{"near", "far"} {
		w := newWorld(t, nil)
		served := make(chan error, 1)
		c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) { _, err := io.Copy(struct{ io.Writer }{c}, c); served <- err }))
		c.Write([]byte("a"))
		io.ReadFull(c, make([]byte, 1))
		if who == "near" {
			w.near.close()
		} else {
			w.far.close()
		}
		if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s closed: client saw %v", who, err)
		}
		if err := <-served; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s closed: server saw %v", who, err)
		}
	}
}

func TestReconfigure(t *testing.T) {
	w := newWorld(t, nil)
	dst := serve(t, serverAddr, echo)
	c := w.steer(dst)
	c.Write([]byte("a"))
	io.ReadFull(c, make([]byte, 1))
	peer := w.near.cfg.Peers[0]
	rules := w.near.cfg.Rules

	// The same again: nothing is restarted.
	control := w.near.peers[0].control
	if err := w.near.Reconfigure([]Peer{peer}, rules, nil); err != nil {
		t.Fatal(err)
	}
	if w.near.peers[0].control != control {
		t.Error("the control connection was restarted")
	}
	// Another id, and a second peer.
	second := Peer{ID: 1, Name: "second", Key: newTestIdentity(t).Fingerprint()}
	peer.ID = 2
	if err := w.near.Reconfigure([]Peer{second, peer}, []Rule{{ID: 7, Name: "rule", PeerID: 2}}, nil); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "peer up under its new id", 20*time.Second, func() bool { return w.near.kernel.isUp(2) && !w.near.kernel.isUp(1) })
	if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" {
		t.Errorf("after the change: %q, %v", b, err)
	}
	// Bad ones change nothing.
	if err := w.near.Reconfigure([]Peer{peer, peer}, nil, nil); err == nil {
		t.Error("two peers with one key passed")
	}
	if len(w.near.Peers()) != 2 {
		t.Error("a bad configuration took effect")
	}
	// Gone: the flow that lives goes on, new ones go direct.
	if err := w.near.Reconfigure(nil, rules, nil); err != nil {
		t.Fatal(err)
	}
	before := w.far.Peers()[0].RawReceived
	if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" {
		t.Errorf("without peers: %q, %v", b, err)
	}
	if w.far.Peers()[0].RawReceived != before {
		t.Error("a flow went to a removed peer")
	}
	c.Write([]byte("b"))
	c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "b" {
		t.Errorf("the live flow: %q, %v", b, err)
	}
	// The far end takes no more from a peer that it no longer knows, or only what it still allows.
	if err := w.far.Reconfigure([]Peer{{ID: 1, Name: "near", Key: w.near.cfg.Identity.Fingerprint()}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.near.Reconfigure(w.near.cfg.Peers, rules, nil); err != nil {
		t.Fatal(err)
	}
	w.waitUp()
	c = w.steer(dst)
	waitFor(t, "refusal", 20*time.Second, func() bool { return w.near.kernel.bypassed(dst) == reason.NotAllowed })
}

func TestRuleOnLegs(t *testing.T) {
	rule := Rule{ID: 7, Name: "rule", PeerID: 1, Congestion: "reno", PacingBps: 50 << 20, WindowBytes: 300_000}
	w := newWorld(t, func(near, far *Config) {
		near.Rules = []Rule{rule}
		far.RuleFor = func(remote netip.Addr, port uint16) (Rule, bool) {
			return Rule{ID: 9, Name: "back", Congestion: "no-such"}, remote == netip.MustParseAddr(nearAddr)
		}
	})
	c := w.steer(serve(t, serverAddr, echo))
	c.Write([]byte("a"))
	io.ReadFull(c, make([]byte, 1))
	var l *leg
	w.near.mu.Lock()
	for _, f := range w.near.flows {
		l = f.leg
	}
	w.near.mu.Unlock()
	err := l.sock.control(func(fd int) error {
		name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if err != nil || name != "reno" {
			return fmt.Errorf("congestion control %q, %w", name, err)
		}
		window, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if err != nil || window != 600_000 {
			return fmt.Errorf("SO_RCVBUF %d, %w", window, err)
		}
		rate, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
		if err != nil || rate != 50<<20 {
			return fmt.Errorf("pacing %d, %w", rate, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	flows := w.far.Flows()
	if len(flows) != 1 || flows[0].RuleID != 9 || flows[0].Client.Addr() != netip.MustParseAddr(nearAddr) {
		t.Errorf("far's flow: %+v", flows)
	}
	if flows := w.near.Flows(); len(flows) != 1 || flows[0].RuleID != 7 || !flows[0].Near || flows[0].RawSent != 1 || flows[0].RawReceived != 1 {
		t.Errorf("near's flow: %+v", flows)
	}
	waitFor(t, "far's line", time.Second, func() bool { return bytes.Contains([]byte(w.far.logs.String()), []byte("no-such")) })
}

func TestNothingLeaks(t *testing.T) {
	goroutines, fds := runtime.NumGoroutine(), openFDs(t)
	t.Run("work", func(t *testing.T) {
		w := newWorld(t, nil)
		dst := serve(t, serverAddr, echo)
		for i := range 50 {
			c := w.steer(dst)
			c.Write(mixed(10_000, uint64(i)))
			switch i % 3 {
			case 0:
				c.CloseWrite()
				io.ReadAll(c)
			case 1:
				abort(c)
			}
			c.Close()
		}
		waitFor(t, "flows end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
		if n := w.far.kernel.owned(); n > 20 {
			t.Errorf("%d sockets still entered", n)
		}
		w.near.close()
		w.far.close()
		if n := w.near.kernel.owned() + w.far.kernel.owned(); n != 0 {
			t.Errorf("%d sockets still entered", n)
		}
		for _, a := range []*agent{w.near, w.far} {
			if a.budget.used != 0 {
				t.Errorf("%s: %d bytes of the budget are gone", a.cfg.Instance, a.budget.used)
			}
		}
	})
	waitFor(t, "goroutines end", 20*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := openFDs(t); n > fds {
		t.Errorf("%d descriptors left", n-fds)
	}
	if t.Failed() {
		t.Log(stacks())
	}
}

func TestAlive(t *testing.T) {
	a := newAgent(t, "lone", Config{})
	if a.Alive() {
		t.Error("alive before Run")
	}
	a.run()
	waitFor(t, "alive", time.Second, a.Alive)
	if p4, p6, peer := a.Ports(); p4 == 0 || (p6 == 0) != (testkit.IPv6() != nil) || peer != 0 {
		t.Errorf("ports %d %d %d", p4, p6, peer)
	}
	a.listeners[0].turn.Store(1)
	if a.Alive() {
		t.Error("alive with a stuck loop")
	}
}
