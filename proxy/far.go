// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/wire"
)

// opener waits on an accepted leg for the flow that it is to carry.
type opener struct{ l *leg }

func (o *opener) closed(error) {}

func (o *opener) frame(t wire.Type, payload []byte) error {
	if t != wire.TypeOpen {
		return fmt.Errorf("%w: %v before OPEN", wire.ErrMalformed, t)
	}
	m, err := wire.ParseOpen(payload)
	if err != nil {
		return err
	}
	if err := dedup.Offers(m.Codec); err != nil {
		return fmt.Errorf("%w: OPEN of flow %d: %w", wire.ErrMalformed, m.Flow, err)
	}
	l, e := o.l, o.l.e
	f := e.newFlow(l.peer, e.ruleOf(source(m, l), m.Destination.Port()), m.Group, m.Codec, e.nextFlow.Add(1), false)
	f.client, f.destination = m.Source, m.Destination
	e.legRule(l, f.rule)
	if f.rule.WindowBytes != 0 {
		if err := l.sock.control(func(fd int) error { return setRcvbuf(fd, int(min(f.rule.WindowBytes, 1<<30))) }); err != nil {
			e.limited.warn("the kernel refuses a rule's window", "rule", f.rule.Name, "err", err)
		}
	}
	l.mu.Lock()
	l.handler = f
	l.mu.Unlock()
	if !f.begin(l) || !e.startWork() {
		return errDraining
	}
	go func() {
		defer e.wg.Done()
		f.serve(m)
		f.wait()
	}()
	return nil
}

// serve dials the destination and lets the bytes flow.
func (f *flow) serve(open wire.Open) {
	// The wait is part of the dial's time, since the near agent gives up on a peer that does not answer.
	deadline := time.Now().Add(f.e.cfg.Timeouts.Dial)
	f.p.dialled.await(f.ctx, open.After)
	s, refused := f.dial(deadline)
	f.p.dialled.done(open.Flow)
	if refused == nil {
		f.mu.Lock()
		gone := f.failed
		if !gone {
			f.local = s
		}
		f.mu.Unlock()
		if gone {
			s.abort()
			return
		}
		f.p.accepted.Add(1)
		m := wire.Opened{Local: addrPort(s.LocalAddr())}
		if err := f.leg.send(wire.TypeOpened, m.Append(nil)); err != nil {
			f.log.Debug("sending OPENED", "err", err)
		}
		f.goSend()
		f.goDeliver()
		return
	}
	f.log.Debug("refused a flow", "destination", f.destination, "reason", reason.Code(refused.Reason), "cause", refused.Text)
	if reason.Code(refused.Reason) == reason.NotAllowed {
		f.e.limited.warn("a peer asked for a destination that it may not reach", "peer", f.p.config().Name,
			"destination", f.destination, "cause", refused.Text)
	}
	if err := f.leg.send(wire.TypeRefused, refused.Append(nil)); err != nil {
		f.log.Debug("sending REFUSED", "err", err)
	}
	f.fail(reason.Code(refused.Reason), refused.Text, false)
}

// dial connects to the flow's destination, if the peer may reach it.
func (f *flow) dial(deadline time.Time) (*sock, *wire.Refused) {
	r, err := f.e.reachOf(f.p, f.leg)
	if err != nil { // out of descriptors, most likely: it says nothing of the destination
		return nil, &wire.Refused{Reason: uint32(reason.TableFull), Text: err.Error()}
	}
	if err := r.check(f.destination); err != nil {
		return nil, &wire.Refused{Reason: uint32(reason.NotAllowed), Text: err.Error()}
	}
	ctx, cancel := context.WithDeadline(f.e.ctx, deadline)
	defer cancel()
	stop := context.AfterFunc(f.ctx, cancel)
	defer stop()
	s, err := dialOwn(ctx, f.e.cfg.Kernel, f.destination.String(), false, setCarried)
	if err != nil {
		return nil, &wire.Refused{Reason: uint32(reason.DialFailed), Class: classOf(err), Text: err.Error()}
	}
	return s, nil
}

func classOf(err error) wire.Class {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return wire.ClassRefused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return wire.ClassTimeout
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return wire.ClassUnreachable
	}
	return wire.ClassOther
}

// reachOf puts together what a peer may reach.
func (e *Engine) reachOf(p *peer, l *leg) (*reach, error) {
	own, err := e.host.get()
	if err != nil {
		return nil, err
	}
	r := &reach{allow: p.config().Allow, own: own, ownPorts: e.listenPorts(), agents: map[netip.AddrPort]bool{}}
	for _, port := range l.hello.Ports {
		r.agents[netip.AddrPortFrom(l.sock.remote().Addr(), port)] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.peers {
		other.mu.Lock()
		if a, err := netip.ParseAddrPort(other.cfg.Address); err == nil {
			r.agents[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())] = true
		}
		if other.where.IsValid() {
			r.agents[other.where] = true
		}
		other.mu.Unlock()
	}
	return r, nil
}
