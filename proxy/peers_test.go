// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/proxy/wire"
)

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestIdentityFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "host.key")
	first, err := LoadOrCreateIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadOrCreateIdentity(path)
	if err != nil || first.Fingerprint() != second.Fingerprint() {
		t.Fatalf("second load: %v", err)
	}
	for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v", p, info.Mode().Perm(), err)
		}
	}
	if key, err := parseKey(first.Fingerprint()); err != nil || !first.public.Equal(key) {
		t.Errorf("fingerprint: %v", err)
	}
	os.Chmod(path, 0o640)
	if _, err := LoadOrCreateIdentity(path); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("readable key: %v", err)
	}
	os.Chmod(path, 0o600)
	os.WriteFile(path, []byte("junk"), 0o600)
	if _, err := LoadOrCreateIdentity(path); err == nil {
		t.Error("junk key passed")
	}
}

func TestReach(t *testing.T) {
	r := reach{
		allow: []Allow{{mustPrefix("10.2.0.0/16"), []uint16{80, 5432}}, {mustPrefix("10.9.0.3/32"), nil}, {mustPrefix("127.0.0.0/8"), nil},
			{mustPrefix("10.9.0.0/16"), nil}, {mustPrefix("fd00::/8"), nil}, {mustPrefix("fe80::/10"), nil}},
		own:      map[netip.Addr]bool{netip.MustParseAddr("10.9.0.3"): true, netip.MustParseAddr("10.9.0.4"): true, netip.MustParseAddr("fd00:9::3"): true},
		ownPorts: []uint16{4820},
		agents:   map[netip.AddrPort]bool{netip.MustParseAddrPort("10.9.8.8:4820"): true},
	}
	for dst, ok := range map[string]bool{
		"10.2.3.4:80": true, "10.2.3.4:81": false, "10.3.0.1:80": false, "127.0.0.1:80": false, "[::1]:80": false, "0.0.0.0:80": false,
		"[::]:80": false, "10.9.0.3:80": true, "10.9.0.3:4820": false, "10.9.0.4:80": false, "10.9.5.5:80": true, "10.9.8.8:4820": false,
		"10.9.8.8:80": true, "[fd00::1]:1": true, "[fd00:9::3]:1": false, "[fe80::1]:1": false, "224.0.0.1:80": false, "169.254.1.1:80": false,
		"[::ffff:127.0.0.1]:80": false, "[::ffff:10.2.3.4]:80": true, "255.255.255.255:80": false, "10.2.3.4:0": false, "[ff02::1]:1": false,
	} {
		if err := r.check(netip.MustParseAddrPort(dst)); (err == nil) != ok {
			t.Errorf("%s: %v", dst, err)
		}
	}
	if err := (&reach{}).check(netip.MustParseAddrPort("10.2.3.4:80")); err == nil {
		t.Error("without `allow` something is reachable")
	}
}

func TestBudget(t *testing.T) {
	b := budget{total: 64 << 20}
	var windows []int64
	for w := b.open(); w != 0; w = b.open() {
		windows = append(windows, w)
	}
	if windows[0] != windowMax || windows[len(windows)-1] != windowLeast || b.used > b.total {
		t.Errorf("windows from %d to %d, %d of %d used", windows[0], windows[len(windows)-1], b.used, b.total)
	}
	if b.grow(1) {
		t.Error("grew beyond the half")
	}
	for _, w := range windows {
		b.release(w)
	}
	if b.used != 0 {
		t.Errorf("%d left", b.used)
	}
}

// TestWrongKey: the peer has another key than configured; neither end takes the other.
func TestWrongKey(t *testing.T) {
	far := newAgent(t, "far", Config{Listen: farAddr + ":0", Peers: []Peer{{ID: 1, Name: "someone", Key: newTestIdentity(t).Fingerprint()}}})
	far.run()
	_, _, port := far.Ports()
	address := fmt.Sprintf("%s:%d", farAddr, port)
	for _, c := range []struct{ name, key, said string }{
		{"wrong", newTestIdentity(t).Fingerprint(), "it has " + far.cfg.Identity.Fingerprint()},
		{"unknown", far.cfg.Identity.Fingerprint(), "does not accept this agent's key"},
	} {
		near := newAgent(t, c.name, Config{Peers: []Peer{{ID: 1, Name: "far", Address: address, Key: c.key}}, Rules: []Rule{{ID: 7, PeerID: 1}}})
		near.run()
		waitFor(t, c.said, 20*time.Second, func() bool { return strings.Contains(near.Peers()[0].Problem, c.said) })
		time.Sleep(400 * time.Millisecond)
		if near.kernel.isUp(1) {
			t.Errorf("%s: peer is up", c.name)
		}
		if n := strings.Count(near.logs.String(), "peer is down"); n != 1 {
			t.Errorf("%s: %d lines", c.name, n)
		}
		if c.name == "unknown" && strings.Count(far.logs.String(), near.cfg.Identity.Fingerprint()) != 1 {
			t.Errorf("far says not once whose key it refused")
		}
		// Connections that the kernel still steers go direct.
		w := &world{t: t, near: near, far: far}
		conn := w.steer(serve(t, serverAddr, echo))
		conn.Write([]byte("hello"))
		conn.CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
			t.Errorf("%s: direct: %q, %v", c.name, got, err)
		}
	}
}

func TestVersionSkew(t *testing.T) {
	w := newStoppedWorld(t, nil)
	w.far.protocol = wire.Major + 1
	w.far.run()
	w.near.run()
	waitFor(t, "incompatible", 20*time.Second, func() bool { return w.near.Peers()[0].Reason == reason.Incompatible })
	waitFor(t, "far's line", 20*time.Second, func() bool { return strings.Contains(w.far.logs.String(), "install the same version") })
	if w.near.kernel.isUp(1) {
		t.Error("an incompatible peer is up")
	}
	if !strings.Contains(w.near.logs.String(), "install the same version") {
		t.Error("near says nothing")
	}
	c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) { c.Write([]byte("direct")) }))
	if got, err := io.ReadAll(c); err != nil || string(got) != "direct" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestGarbage(t *testing.T) {
	w := newWorld(t, nil)
	_, _, port := w.far.Ports()
	for _, junk := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000), strings.Repeat("\x00", 1000)} {
		c, err := net.Dial("tcp", at(farAddr, port).String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(junk))
		c.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(testkit.Wait(7 * time.Second)))
		io.ReadAll(c)
		c.Close()
	}
	if _, err := io.ReadAll(echoOnce(w)); err != nil {
		t.Fatal(err)
	}
}

// echoOnce starts an exchange through the agents.
func echoOnce(w *world) *net.TCPConn {
	c := w.steer(serve(w.t, serverAddr, echo))
	c.Write([]byte("hello"))
	c.CloseWrite()
	return c
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", farAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := openFDs(t)
	_, err = New(Config{Identity: newTestIdentity(t), Kernel: newFakeKernel(), Listen: l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "taken") {
		t.Fatalf("%v", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors left", after-before)
	}
}

// TestLegCut: whatever happens to the leg, the application and the server see a reset, never an end.
func TestLegCut(t *testing.T) {
	w, m := newMiddleWorld(t, func(near, _ *Config) { near.Timeouts.Redial = testkit.Wait(200 * time.Millisecond) })
	var current atomic.Pointer[[]byte]
	served := make(chan error, 1)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		c.Write(*current.Load())
		c.CloseWrite()
		_, err := io.Copy(io.Discard, c)
		served <- err
	})
	for i := range 12 {
		data := mixed(8<<20, uint64(i))
		current.Store(&data)
		m.limit.Store(m.passed.Load() + 1 + int64(i*i*20_000))
		if i%4 == 3 {
			m.limit.Store(0)
			time.AfterFunc(time.Duration(i)*4*time.Millisecond, func() { m.cut(true) })
		}
		var got []byte
		c, err := w.steerOrReset(dst), error(unix.ECONNRESET)
		if c != nil {
			c.Write([]byte("x"))
			got, err = io.ReadAll(c)
		}
		if err == nil && len(got) != len(data) {
			t.Fatalf("round %d: clean end after %d of %d bytes", i, len(got), len(data))
		}
		if err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Fatalf("round %d: %v", i, err)
		}
		if !bytes.HasPrefix(data, got) {
			t.Fatalf("round %d: wrong bytes", i)
		}
		if c != nil {
			c.Close()
		}
		select {
		case <-served:
		case <-time.After(testkit.Wait(20 * time.Second)):
			if len(got) > 0 {
				t.Fatalf("round %d: the server hangs", i)
			}
		}
		m.limit.Store(0)
		w.waitUp()
		waitFor(t, "warm legs", 20*time.Second, func() bool { return w.near.Peers()[0].LegsWarm > 0 })
	}
}

// TestSilence: the peer neither answers nor closes.
func TestSilence(t *testing.T) {
	w, m := newMiddleWorld(t, func(near, far *Config) {
		near.Timeouts.Ping, near.Timeouts.Pong, near.Timeouts.Open = testkit.Wait(50*time.Millisecond), testkit.Wait(300*time.Millisecond), testkit.Wait(400*time.Millisecond)
		near.Timeouts.Leg, near.Timeouts.Redial = testkit.Wait(300*time.Millisecond), testkit.Wait(200*time.Millisecond)
	})
	dst := serve(t, serverAddr, func(c *net.TCPConn) { c.Write([]byte("hello")); echo(c) })
	live := w.steer(dst)
	io.ReadFull(live, make([]byte, 5))
	m.hole.Store(true)
	quiet, talking := w.steer(dst), w.steer(dst)
	talking.Write([]byte("x"))
	waitFor(t, "peer down", 20*time.Second, func() bool { return !w.near.kernel.isUp(1) })
	// Nothing was sent: it goes direct. Something was: a reset is left.
	if b, err := io.ReadAll(io.LimitReader(quiet, 5)); err != nil || string(b) != "hello" {
		t.Errorf("quiet: %q, %v", b, err)
	}
	if b, err := io.ReadAll(talking); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("talking: %q, %v", b, err)
	}
	if n := w.near.Peers()[0].LegsWarm; n != 0 {
		t.Errorf("%d warm legs to a silent peer", n)
	}
	m.hole.Store(false)
	m.cut(true)
	w.waitUp()
	if b, err := io.ReadAll(live); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("live flow over a cut leg: %q, %v", b, err)
	}
	if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" {
		t.Errorf("after recovery: %q, %v", b, err)
	}
}

// TestPoolNoticesDeadLegs: idle legs that die leave the pool, and are replaced.
func TestPoolNoticesDeadLegs(t *testing.T) {
	w, m := newMiddleWorld(t, func(near, _ *Config) { near.Timeouts.Ping = testkit.Wait(50 * time.Millisecond) })
	full := func() bool { return w.near.Peers()[0].LegsWarm == w.near.cfg.WarmLegs }
	waitFor(t, "full pool", 20*time.Second, full)
	m.cut(false)
	waitFor(t, "empty pool", 20*time.Second, func() bool { return w.near.Peers()[0].LegsWarm == 0 })
	waitFor(t, "pool full again", 20*time.Second, full)
	if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestLegsAreRenewed(t *testing.T) {
	w := newWorld(t, func(near, _ *Config) {
		near.Timeouts.Ping, near.Timeouts.LegAge, near.WarmLegs = testkit.Wait(20*time.Millisecond), testkit.Wait(100*time.Millisecond), 2
	})
	p := w.near.peers[0]
	first := func() *leg {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.idle) == 0 {
			return nil
		}
		return p.idle[0]
	}
	waitFor(t, "warm leg", 20*time.Second, func() bool { return first() != nil })
	old := first()
	waitFor(t, "another leg", 20*time.Second, func() bool { l := first(); return l != nil && l != old })
}

// TestSilentStrangers: connections that say nothing do not keep the peer out.
func TestSilentStrangers(t *testing.T) {
	w := newWorld(t, func(near, far *Config) { near.WarmLegs = -1; far.Timeouts.Handshake = testkit.Wait(2 * time.Second) })
	_, _, port := w.far.Ports()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(otherAddr)}}
	for range maxHandshakes + 20 {
		c, err := d.Dial("tcp", at(farAddr, port).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	waitFor(t, "bound on handshakes", 20*time.Second, func() bool { return len(w.far.gate.places) == maxHandshakesFrom })
	if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" || w.far.Peers()[0].RawReceived == 0 {
		t.Errorf("%q, %v, %d bytes through the peer", b, err, w.far.Peers()[0].RawReceived)
	}
	waitFor(t, "strangers gone", 20*time.Second, func() bool { return len(w.far.gate.places) == 0 })
}
