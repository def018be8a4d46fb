// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/trunkline/trunkline/proxy/wire"
)

// Bounds on connections that have not shown a known key yet. One address may not take all places.
const (
	maxHandshakes     = 128
	maxHandshakesFrom = 96
)

// gate bounds the connections in handshake.
type gate struct {
	places chan struct{}
	turns  turns // of those, and of the legs that are dialled
	mu     sync.Mutex
	from   map[netip.Addr]int
}

func newGate() *gate {
	return &gate{places: make(chan struct{}, maxHandshakes), turns: newTurns(), from: map[netip.Addr]int{}}
}

func (g *gate) enter(addr netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from[addr] >= maxHandshakesFrom {
		return false
	}
	select {
	case g.places <- struct{}{}:
	default:
		return false
	}
	g.from[addr]++
	return true
}

func (g *gate) leave(addr netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	<-g.places
	if g.from[addr]--; g.from[addr] == 0 {
		delete(g.from, addr)
	}
}

// acceptPeer takes a connection to the peer listener.
func (e *Engine) acceptPeer(conn *net.TCPConn) {
	s, err := newSock(conn, e.cfg.Kernel)
	if err != nil {
		conn.Close()
		return
	}
	// A leg from its first segment on: the kernel side cannot tell by itself what priority it has.
	if err := e.cfg.Kernel.Own(s.cookie, 0, true); err != nil {
		e.limited.warn("entering a leg", "err", err)
	}
	addr := s.remote().Addr()
	if !e.gate.enter(addr) {
		e.limited.warn("too many connections in handshake on the peer port", "from", addr)
		s.close()
		return
	}
	l := e.newLeg(s)
	err = e.admit(l)
	e.gate.leave(addr)
	if err != nil {
		e.refuse(l, err)
		return
	}
	e.track(l)
	defer e.untrack(l)
	if l.hello.Kind == wire.KindControl {
		e.answerPings(l)
		return
	}
	if l.peer.countLeg(1) > 2*e.cfg.MaxFlows {
		e.limited.warn("too many legs from a peer", "peer", l.peer.config().Name)
		l.close()
	}
	l.take(&opener{l: l})
	l.run()
	l.peer.countLeg(-1)
}

// countLeg counts legs that the peer dialled.
func (p *peer) countLeg(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.legs += n
	return p.legs
}

// admit does the accepting end's handshakes: TLS with a known key, HELLO, HELLO.
func (e *Engine) admit(l *leg) error {
	l.sock.SetDeadline(time.Now().Add(e.cfg.Timeouts.Handshake))
	if err := l.sock.control(setLeg); err != nil {
		return fmt.Errorf("setting up a leg: %w", err)
	}
	l.tls = tls.Server(l.below, e.serverTLS)
	l.r.Reset(l.tls)
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.Timeouts.Handshake)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.sock.SetDeadline(past) })
	defer stop()
	if err := l.shake(ctx); err != nil {
		return err
	}
	key, err := peerKey(l.tls.ConnectionState())
	if err != nil {
		return err
	}
	if l.peer = e.peerByKey(key); l.peer == nil {
		return &keyError{key}
	}
	hello, err := l.readHello()
	var version *wire.VersionError
	if errors.As(err, &version) {
		l.sendHello(wire.KindControl) // lets the other end see the same
		return err
	}
	if err != nil {
		return err
	}
	if hello.Kind != wire.KindControl && hello.Kind != wire.KindLeg {
		return fmt.Errorf("%w: HELLO of kind %d", wire.ErrMalformed, hello.Kind)
	}
	if e.draining.Load() {
		return errDraining
	}
	l.peer.met(hello)
	if err := l.sendHello(hello.Kind); err != nil {
		return err
	}
	if hello.Kind == wire.KindLeg && (l.window == 0 || hello.Credit == 0) {
		return errBusy
	}
	if !stop() {
		return ctx.Err()
	}
	l.sock.SetDeadline(noDeadline)
	return nil
}

// refuse ends a connection that was not admitted, with one line for whoever has to act.
func (e *Engine) refuse(l *leg, err error) {
	var key *keyError
	var version *wire.VersionError
	from := l.sock.remote()
	switch {
	case errors.As(err, &key):
		e.limited.warn("refused a connection with an unknown key: is a peer missing in the configuration?",
			"from", from, "key", fingerprint(key.key))
	case errors.As(err, &version):
		e.limited.warn("refused a peer: install the same version of trunkline at both ends",
			"peer", l.peer.config().Name, "from", from, "err", err)
		l.peer.incompatible(version)
	case errors.Is(err, errBusy):
		e.limited.warn("refused a leg: the buffers are all in use", "peer", l.peer.config().Name)
	default:
		e.cfg.Log.Debug("connection on the peer port failed", "from", from, "err", err)
	}
	if l.peer != nil {
		// What was written may not have arrived; to close with something unread would destroy it.
		l.shut()
		l.sock.SetDeadline(time.Now().Add(time.Second))
		for err = nil; err == nil; {
			_, err = l.r.Discard(1)
		}
	}
	l.close()
}

// answerPings serves a control connection that the peer dialled.
func (e *Engine) answerPings(l *leg) {
	p := l.peer
	p.mu.Lock()
	p.inbound++
	p.mu.Unlock()
	l.take(&ponger{agreement: newAgreement(p), l: l})
	l.sock.SetReadDeadline(time.Now().Add(3 * e.cfg.Timeouts.Pong))
	end := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { p.keepTelling(l, end) })
	l.run()
	close(end)
	telling.Wait()
	p.mu.Lock()
	p.inbound--
	p.mu.Unlock()
}

// ponger is the accepting end of a control connection.
type ponger struct {
	agreement
	l *leg
}

func (c *ponger) frame(t wire.Type, payload []byte) error {
	if t == wire.TypeRanges {
		first, err := c.take(payload)
		if err == nil && first {
			err = c.p.tellHolds(c.l)
		}
		return err
	}
	if t != wire.TypePing {
		return fmt.Errorf("%w: %v on a control connection", wire.ErrMalformed, t)
	}
	if _, err := wire.ParsePing(payload); err != nil {
		return err
	}
	c.l.sock.SetReadDeadline(time.Now().Add(3 * c.l.e.cfg.Timeouts.Pong))
	c.l.sock.SetWriteDeadline(time.Now().Add(c.l.e.cfg.Timeouts.Pong))
	return c.l.send(wire.TypePong, payload)
}

func (c *ponger) closed(error) {}
