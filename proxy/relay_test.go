// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
)

// newLoneWorld has a near agent whose rule names a peer that it does not have: all goes direct.
func newLoneWorld(t *testing.T) *world {
	near := newAgent(t, "near", Config{Rules: []Rule{{ID: 7, Name: "rule", PeerID: 1}}})
	near.run()
	waitFor(t, "alive", time.Second, near.Alive)
	return &world{t: t, near: near}
}

// TestRelay: connections that are steered while there is no peer go direct, with the same care.
func TestRelay(t *testing.T) {
	w := newLoneWorld(t)
	near := w.near
	t.Run("exact", func(t *testing.T) {
		data := mixed(5<<20, 11)
		c := w.steer(serve(t, serverAddr, echo))
		go writeRandomly(c, data, 2)
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	})
	t.Run("half close by the server", func(t *testing.T) {
		got := make(chan string, 1)
		c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) {
			c.CloseWrite()
			b, err := io.ReadAll(c)
			if err != nil {
				b = []byte(err.Error())
			}
			got <- string(b)
		}))
		if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
			t.Fatalf("%q, %v", b, err)
		}
		if f := near.Flows(); len(f) != 1 || !f[0].Direct || f[0].RuleID != 7 || f[0].Reason != reason.PeerDown {
			t.Errorf("%+v", f)
		}
		c.Write([]byte("late"))
		c.Close()
		if b := <-got; b != "late" {
			t.Fatal(b)
		}
	})
	waitFor(t, "relays end", 20*time.Second, func() bool { return near.live() == 0 })
	c := w.steer(serve(t, serverAddr, echo))
	waitFor(t, "relay", 20*time.Second, func() bool { return near.live() == 1 })
	near.close()
	if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("closed engine: %q, %v", b, err)
	}
}

func TestRelayResets(t *testing.T) {
	w := newLoneWorld(t)
	t.Run("by the application", func(t *testing.T) {
		for _, half := range []bool{false, true} {
			got := make(chan error, 1)
			c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) {
				io.ReadFull(c, make([]byte, 1))
				if half {
					io.ReadAll(c)
				}
				raw, _ := c.SyscallConn()
				got <- (&sock{TCPConn: c, raw: raw}).watch()
			}))
			c.Write([]byte("x"))
			if half {
				c.CloseWrite()
			}
			time.Sleep(50 * time.Millisecond)
			abort(c)
			if err := <-got; !isReset(err) {
				t.Errorf("half %v: server saw %v", half, err)
			}
		}
	})
	t.Run("by the server", func(t *testing.T) {
		c := w.steer(serve(t, serverAddr, func(c *net.TCPConn) { io.ReadFull(c, make([]byte, 1)); abort(c) }))
		c.Write([]byte("x"))
		if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", serverAddr+":0")
		if err != nil {
			t.Fatal(err)
		}
		dst := addrPort(l.Addr())
		l.Close()
		if c := w.steerOrReset(dst); c != nil {
			if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%q, %v", b, err)
			}
		}
		if r := w.near.kernel.bypassed(dst); r != reason.DialFailed {
			t.Errorf("bypass for %v", r)
		}
	})
	waitFor(t, "relays end", 20*time.Second, func() bool { return w.near.live() == 0 })
}
