// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/trunkline/trunkline/proxy/history"
)

// lose makes an agent forget what its peer has sent, without the peer knowing.
func lose(a *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers[0].memory.Receivers = history.NewReceivers(a.cfg.HistoryBytes)
}

// TestLostHistory: references into a history that is gone are asked for, raw, in both directions and with END behind them.
func TestLostHistory(t *testing.T) {
	w := newWorld(t, func(near, far *Config) {
		patient(near, far) // a peer that connects anew tells what it has lost
		near.WarmLegs = -1
	})
	data := mixed(3<<20, 8)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("server got %d bytes, %v", len(got), err)
		}
		c.Write(got)
	})
	for _, loser := range []*agent{nil, w.near, w.far, w.near} {
		if loser != nil {
			lose(loser)
		}
		c := w.steer(dst)
		go writeRandomly(c, data, 1)
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("client got %d bytes, %v", len(got), err)
		}
	}
	asked := bytes.Count([]byte(w.near.logs.String()+w.far.logs.String()), []byte("asking the peer"))
	if asked < 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestRestart: a peer that starts anew has lost its histories, and nothing is referred to that it does not hold.
func TestRestart(t *testing.T) {
	w := newWorld(t, nil)
	data := mixed(2<<20, 9)
	dst := serve(t, serverAddr, func(c *net.TCPConn) { c.Write(data); c.CloseWrite(); io.Copy(io.Discard, c) })
	fetch := func() int64 {
		before := w.near.Peers()[0].WireReceived
		if got, err := io.ReadAll(w.steer(dst)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		return w.near.Peers()[0].WireReceived - before
	}
	cold, warm := fetch(), fetch()
	if warm*20 > cold {
		t.Errorf("cold %d, warm %d bytes", cold, warm)
	}
	old := w.near
	cfg := old.cfg
	old.close()
	w.near = newAgent(t, "near again", Config{Identity: cfg.Identity, Listen: cfg.Listen, Peers: cfg.Peers, Rules: cfg.Rules})
	w.near.run()
	w.waitUp()
	again, warmAgain := fetch(), fetch()
	if again < cold/2 || warmAgain*20 > again {
		t.Errorf("after the restart %d, then %d bytes", again, warmAgain)
	}
	if bytes.Contains([]byte(w.near.logs.String()), []byte("asking the peer")) {
		t.Error("the far end referred to what is gone")
	}
}

// TestNoHistory: flows of a rule without history arrive, but nothing of them is kept.
func TestNoHistory(t *testing.T) {
	w := newWorld(t, func(near, _ *Config) { near.Rules[0].History = HistoryNone })
	data := bytes.Repeat([]byte("text that compresses well, line after line\n"), 20_000)
	dst := serve(t, serverAddr, func(c *net.TCPConn) { c.Write(data); c.CloseWrite(); io.Copy(io.Discard, c) })
	if got, err := io.ReadAll(w.steer(dst)); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	s := w.near.Peers()[0]
	if s.HistoryBytes != 0 || w.far.Peers()[0].HistoryBytes != 0 {
		t.Errorf("%d and %d bytes kept", s.HistoryBytes, w.far.Peers()[0].HistoryBytes)
	}
	if s.WireReceived*10 > s.RawReceived {
		t.Errorf("%d bytes on the wire for %d", s.WireReceived, s.RawReceived)
	}
}
