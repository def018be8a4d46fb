// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/wire"
)

// near takes a steered connection and returns what carries it. Connections are taken one after the other, so that
// their order is known.
func (e *Engine) near(conn *net.TCPConn) func() {
	s, err := newSock(conn, e.cfg.Kernel)
	if err != nil {
		conn.Close()
		return func() {}
	}
	orig, ok := e.cfg.Kernel.TakeOriginal(s.remote())
	if !ok {
		return func() {
			e.limited.warn("reset a connection that was not steered here", "from", s.remote(), "reason", reason.NoOriginal)
			e.reasons.add(reason.NoOriginal)
			s.abort()
		}
	}
	id := e.nextFlow.Add(1)
	after := e.arrivals.next(orig.Destination, id)
	return func() {
		defer e.arrivals.settled(orig.Destination, id)
		e.steer(s, orig, id, after)
	}
}

// steer finds a leg for a connection; where there is none it goes direct after all.
func (e *Engine) steer(s *sock, orig Original, id, after uint64) {
	rule, p := e.route(orig)
	if p == nil {
		e.relayDirect(s, orig, reason.PeerDown)
		return
	}
	if p.flows.Load() >= int64(e.cfg.MaxFlows) {
		e.limited.warn("too many flows with a peer, more go direct", "peer", p.config().Name)
		e.relayDirect(s, orig, reason.TableFull)
		return
	}
	f := e.newFlow(p, rule, rule.group(), p.agree(rule), id, true)
	f.client, f.destination = s.remote(), orig.Destination
	f.local = s
	l, err := p.takeLeg(e.ctx, rule, f)
	if err != nil {
		f.drop()
		code := reason.PeerDown
		switch {
		case errors.Is(err, errBusy):
			code = reason.TableFull
		case !errors.Is(err, errDown):
			p.suspect(f.start, err)
		}
		e.relayDirect(s, orig, code)
		return
	}
	e.carry(f, l, orig, after)
}

// carry runs a flow over a leg, and goes direct after all if the peer cannot carry it and has got nothing of it.
func (e *Engine) carry(f *flow, l *leg, orig Original, after uint64) {
	e.legRule(l, f.rule)
	if !f.begin(l) {
		f.local.abort()
		l.close()
		return
	}
	m := wire.Open{Flow: f.id, After: after, Destination: orig.Destination, Source: orig.Source, Group: f.group, Codec: f.codec}
	if err := l.send(wire.TypeOpen, m.Append(nil)); err != nil {
		f.log.Debug("sending OPEN", "err", err)
	}
	f.goSend()
	local, code := f.awaitOpened()
	e.arrivals.settled(f.destination, f.id)
	if local == nil {
		f.wait()
		return
	}
	if !e.startWork() {
		local.abort()
		f.wait()
		return
	}
	go func() {
		defer e.wg.Done()
		f.wait()
	}()
	e.relayDirect(local, orig, code)
}

// patience is how many times the usual the answer of a peer is waited for that is busy, and has got bytes of the flow.
const patience = 5

// awaitOpened waits for the peer's answer. If the flow is given up and nothing was sent, it returns the application's
// socket, untouched, and why.
func (f *flow) awaitOpened() (*sock, reason.Code) {
	code, text := f.awaitAnswer()
	if code == reason.None {
		f.p.opened.Add(1)
		f.goDeliver()
		return nil, reason.None
	}
	f.log.Debug("peer does not carry a flow", "reason", code, "cause", text)
	if code == reason.DialFailed || code == reason.NotAllowed {
		f.e.cfg.Kernel.Bypass(f.destination, code, f.e.cfg.Timeouts.Bypass)
	}
	if code == reason.NotAllowed {
		f.e.limited.warn("the peer does not allow a destination", "peer", f.p.config().Name, "destination", f.destination, "cause", text)
	}
	var local *sock
	if code != reason.DialFailed { // which is reset without any byte, so that the next try gets the true error
		local, _ = f.detach()
	}
	f.fail(code, text, true)
	return local, code
}

// awaitAnswer waits for what the peer says to OPEN, or what stands for it. A peer that answers pings is not down for the first
// time-out: a host on which a thousand connections begin at once is slow. A flow of which it has got nothing goes direct then;
// one of which it has got bytes waits on, since only a reset would be left to it.
func (f *flow) awaitAnswer() (code reason.Code, text string) {
	usual := f.e.cfg.Timeouts.Open + f.p.roundTrip()
	timeout := time.NewTimer(usual)
	defer timeout.Stop()
	for begun := time.Now(); ; timeout.Reset(usual) {
		select {
		case <-timeout.C:
			err := errors.New("no answer to OPEN")
			busy := time.Since(begun) < patience*usual && f.p.alive()
			if busy && f.hasSent() {
				continue
			}
			if !busy {
				f.p.suspect(f.start, err)
			}
			return reason.PeerDown, err.Error()
		case a := <-f.answer:
			return a.code, a.text
		case <-f.over:
			select {
			case a := <-f.answer: // which came before the end of the leg
				return a.code, a.text
			default:
				return reason.LegFailed, "the leg broke before the flow was open"
			}
		}
	}
}

// hasSent tells whether the peer has got, or may get, bytes of the flow.
func (f *flow) hasSent() bool {
	f.reading.Lock()
	defer f.reading.Unlock()
	return f.payload
}

func (p *peer) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rtt
}

// source returns the address by which this end's rule for a peer's flow is found.
func source(m wire.Open, l *leg) netip.Addr {
	if m.Source.IsValid() {
		return m.Source.Addr()
	}
	return l.sock.remote().Addr()
}
