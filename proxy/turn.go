// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"runtime"
)

// turns bounds how many handshakes compute at the same time. However many begin at once, no more goroutines than there are
// processors keep pings and the frames of flows waiting: those would take the peer for dead and reset what it carries.
type turns chan struct{}

func newTurns() turns { return make(turns, runtime.GOMAXPROCS(0)) }

// A turn belongs to one handshake. It is given back while the handshake waits for the other end.
type turn struct {
	turns turns
	ctx   context.Context
	held  bool
}

func (t *turn) take() error {
	select {
	case t.turns <- struct{}{}:
		t.held = true
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

func (t *turn) giveBack() {
	if t.held {
		t.held = false
		<-t.turns
	}
}

// shake does the TLS handshake of a leg, in turn with others.
func (l *leg) shake(ctx context.Context) error {
	t := &turn{turns: l.e.gate.turns, ctx: ctx}
	if err := t.take(); err != nil {
		return err
	}
	defer t.giveBack()
	l.below.turn = t
	defer func() { l.below.turn = nil }()
	return l.tls.HandshakeContext(ctx)
}

// Read reads; a handshake gives its turn back while it waits.
func (c *coalescer) Read(b []byte) (int, error) {
	t := c.turn
	if t == nil {
		return c.TCPConn.Read(b)
	}
	t.giveBack()
	n, err := c.TCPConn.Read(b)
	if err == nil {
		err = t.take()
	}
	return n, err
}
