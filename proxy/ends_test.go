// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forgetful makes kernels forget closed connections soon and the engines probe soon, as they do after a minute elsewhere.
func forgetful(t *testing.T) {
	const sysctl = "/proc/sys/net/ipv4/tcp_fin_timeout"
	before, err := os.ReadFile(sysctl)
	if err == nil {
		err = os.WriteFile(sysctl, []byte("1"), 0)
	}
	if err != nil {
		t.Fatalf("the kernel's time for closed connections cannot be changed: %v", err)
	}
	keepAlive := legKeepAlive
	legKeepAlive.Idle, legKeepAlive.Interval = time.Second, time.Second
	t.Cleanup(func() { // after the engines' end, as they are made later
		legKeepAlive = keepAlive
		os.WriteFile(sysctl, before, 0)
	})
}

// TestASlowReaderOutlivesItsSender: who has sent everything may close. The reader gets all of it, however long that takes,
// as it would from the sender's kernel.
func TestASlowReaderOutlivesItsSender(t *testing.T) {
	forgetful(t)
	for name, w := range map[string]*world{"peer": newWorld(t, nil), "direct": newLoneWorld(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := mixed(8<<20, 5)
			slowly := func(c *net.TCPConn) ([]byte, error) {
				c.SetReadBuffer(64 << 10)
				time.Sleep(4 * time.Second)
				return io.ReadAll(c)
			}
			down := serve(t, serverAddr, func(c *net.TCPConn) { c.Write(data) })
			up, got := make(chan []byte, 1), make(chan error, 1)
			sink := serve(t, serverAddr, func(c *net.TCPConn) { b, err := slowly(c); up <- b; got <- err })
			answered := serve(t, serverAddr, func(c *net.TCPConn) {
				c.Write([]byte("ok"))
				c.CloseWrite()
				b, err := slowly(c)
				up <- b
				got <- err
			})
			reader := w.steer(down)
			if b, err := slowly(reader); err != nil || !bytes.Equal(b, data) {
				t.Errorf("client: %d of %d bytes, %v", len(b), len(data), err)
			}
			for _, dst := range []struct {
				what string
				conn *net.TCPConn
			}{{"server", w.steer(sink)}, {"server that ended first", w.steer(answered)}} {
				go func() {
					if dst.what != "server" {
						io.ReadAll(dst.conn)
					}
					dst.conn.Write(data)
					dst.conn.Close()
				}()
				if b, err := <-up, <-got; err != nil || !bytes.Equal(b, data) {
					t.Errorf("%s: %d of %d bytes, %v", dst.what, len(b), len(data), err)
				}
			}
		})
	}
}

// TestUrgentDataStaysInItsPlace: nothing is missing of what was sent as urgent.
func TestUrgentDataStaysInItsPlace(t *testing.T) {
	for name, w := range map[string]*world{"peer": newWorld(t, nil), "direct": newLoneWorld(t)} {
		t.Run(name, func(t *testing.T) {
			say := func(c *net.TCPConn) {
				c.Write([]byte("abc"))
				raw, _ := c.SyscallConn()
				raw.Control(func(fd uintptr) { unix.Send(int(fd), []byte("!"), unix.MSG_OOB) })
				time.Sleep(20 * time.Millisecond)
				c.Write([]byte("def"))
				c.CloseWrite()
			}
			got := make(chan []byte, 1)
			c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) {
				say(c)
				b, _ := io.ReadAll(c)
				got <- b
			}))
			say(c)
			b, err := io.ReadAll(c)
			if other := <-got; err != nil || string(b) != "abc!def" || string(other) != "abc!def" {
				t.Errorf("client got %q, %v, server %q", b, err, other)
			}
		})
	}
}

// TestAResetAtOnceIsAReset: a client that resets before the peer has answered leaves one connection at the server, and that
// ends by a reset.
func TestAResetAtOnceIsAReset(t *testing.T) {
	w := newWorld(t, nil)
	var accepted, clean atomic.Int64
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		accepted.Add(1)
		if _, err := io.ReadAll(c); err == nil {
			clean.Add(1)
		}
	})
	const clients = 100
	for range clients {
		c := w.steer(dst)
		abort(c)
	}
	waitFor(t, "flows end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
	if clean.Load() != 0 || accepted.Load() > clients {
		t.Errorf("of %d connections at the server, for %d of clients, %d ended cleanly", accepted.Load(), clients, clean.Load())
	}
}
