// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crowded listens with room for one connection that nobody accepts yet, and fills it: what dials it now gets no answer until
// the returned function lets a server at the listener.
func crowded(t *testing.T) (dst netip.AddrPort, open func(handle func(*net.TCPConn))) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	sa := &unix.SockaddrInet4{Addr: netip.MustParseAddr(serverAddr).As4()}
	if err := unix.Bind(fd, sa); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	dst = l.Addr().(*net.TCPAddr).AddrPort()
	filler, err := net.Dial("tcp", dst.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { filler.Close() })
	return dst, func(handle func(*net.TCPConn)) {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					handle(c.(*net.TCPConn))
				}()
			}
		}()
	}
}

// A peer that is slow to say that a flow is open, and answers pings, is waited for: of a flow that it has got bytes of only a
// reset would be left. That it is slow does not make it down for others.
func TestABusyPeerIsWaitedFor(t *testing.T) {
	w := newWorld(t, func(near, _ *Config) {
		near.Timeouts.Open, near.Timeouts.Ping, near.Timeouts.Pong = 400*time.Millisecond, 100*time.Millisecond, 5*time.Second
	})
	dst, open := crowded(t)
	c := w.steer(dst)
	data := mixed(100_000, 1)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	time.Sleep(700 * time.Millisecond) // beyond the first time-out
	if p := w.near.Peers()[0]; !p.Up {
		t.Errorf("the peer counts as down: %s", p.Problem)
	}
	open(echo)
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(data), err)
	}
}

// It is not waited for without end, and a flow that it has got nothing of goes direct with the first time-out.
func TestABusyPeerIsGivenUp(t *testing.T) {
	w := newWorld(t, func(near, far *Config) {
		near.Timeouts.Open, near.Timeouts.Ping = 100*time.Millisecond, 50*time.Millisecond
		far.Timeouts.Dial = 20 * time.Second
	})
	dst, open := crowded(t)
	silent, talking := w.steer(dst), w.steer(dst)
	start := time.Now()
	if _, err := talking.Write([]byte("to the peer")); err != nil {
		t.Fatal(err)
	}
	talking.SetReadDeadline(start.Add(20 * time.Second))
	if _, err := talking.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a flow whose bytes the peer has ends with %v, want a reset", err)
	}
	if took := time.Since(start); took < (patience-2)*100*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
	open(echo)
	if _, err := silent.Write([]byte("direct")); err != nil {
		t.Fatal(err)
	}
	silent.CloseWrite()
	silent.SetReadDeadline(time.Now().Add(20 * time.Second))
	if got, err := io.ReadAll(silent); err != nil || string(got) != "direct" {
		t.Errorf("the flow that went direct: %q, %v", got, err)
	}
}
