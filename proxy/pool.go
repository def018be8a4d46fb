// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/wire"
)

// maxDials is how many legs are dialled to a peer at once. The accepting end takes more handshakes than that.
const maxDials = 64

// legWait is how long a connection waits for its turn when many come at once.
const legWait = 15 * time.Second

var errDown = errors.New("the peer is down")

func noSetup(int) error { return nil }

// takeLeg gives a leg to a handler: a warm one, else a fresh one. Legs of a rule with a window are always fresh, because
// it has to be set before the SYN.
func (p *peer) takeLeg(ctx context.Context, rule Rule, h handler) (*leg, error) {
	if rule.WindowBytes != 0 {
		return p.freshLeg(ctx, h, func(fd int) error { return setRcvbuf(fd, int(min(rule.WindowBytes, 1<<30))) })
	}
	defer p.fill(ctx)
	for l := p.popIdle(); l != nil; l = p.popIdle() {
		if l.take(h) {
			return l, nil
		}
	}
	return p.freshLeg(ctx, h, noSetup)
}

func (p *peer) popIdle() *leg {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	l := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return l
}

func (p *peer) freshLeg(ctx context.Context, h handler, setup func(fd int) error) (*leg, error) {
	wait, cancel := context.WithTimeout(ctx, legWait)
	defer cancel()
	select {
	case p.dials <- struct{}{}:
		defer func() { <-p.dials }()
	case <-wait.Done():
		return nil, fmt.Errorf("waiting to dial the peer: %w", wait.Err())
	}
	if !p.isUp() {
		return nil, errDown
	}
	l, err := p.dialLeg(ctx, wire.KindLeg, setup)
	if err != nil {
		return nil, fmt.Errorf("dialling the peer: %w", err)
	}
	p.met(l.hello)
	l.take(h)
	p.e.wg.Go(l.run)
	return l, nil
}

func (p *peer) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up
}

// tend is called with each ping: it replaces legs that have been idle for long, fills the pool, and tells the kernel
// side again that the peer is up, should the entry have been lost.
func (p *peer) tend(ctx context.Context) {
	p.mu.Lock()
	var old []*leg
	kept := p.idle[:0:0]
	for _, l := range p.idle {
		if time.Since(l.created) > p.e.cfg.Timeouts.LegAge {
			old = append(old, l)
		} else {
			kept = append(kept, l)
		}
	}
	p.idle = kept
	id, up := p.cfg.ID, p.up
	p.mu.Unlock()
	for _, l := range old {
		l.close()
	}
	if up {
		p.e.cfg.Kernel.SetPeer(id, true)
	}
	p.fill(ctx)
}

// fill dials legs until enough are warm.
func (p *peer) fill(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.up && p.cancel != nil && len(p.idle)+p.filling < p.e.cfg.WarmLegs && p.e.startWork() {
		p.filling++
		go func() {
			defer p.e.wg.Done()
			p.warm()
		}()
	}
}

func (p *peer) warm() {
	l, err := p.dialLeg(p.e.ctx, wire.KindLeg, noSetup)
	if err == nil {
		p.met(l.hello)
	}
	p.mu.Lock()
	p.filling--
	keep := err == nil && p.up
	if keep {
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.log().Debug("warming a leg failed", "err", err)
	case keep:
		p.watch(l)
	default:
		l.close()
	}
}

// watch reads an idle leg, so that its end is noticed at once, and goes on reading it for the flow that takes it.
func (p *peer) watch(l *leg) {
	l.run()
	p.mu.Lock()
	for i, other := range p.idle {
		if other == l {
			p.idle = append(p.idle[:i:i], p.idle[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
}

// legRule makes a leg what the rule of its flow says.
func (e *Engine) legRule(l *leg, rule Rule) {
	if err := e.cfg.Kernel.Own(l.sock.cookie, rule.ID, true); err != nil {
		e.limited.warn("entering a leg", "err", err)
	}
	if rule.ID == 0 {
		return
	}
	if err := l.sock.control(func(fd int) error { return setCongestion(fd, rule.Congestion) }); err != nil {
		e.limited.warn("the kernel refuses a rule's congestion control", "rule", rule.Name, "congestion", rule.Congestion, "err", err)
	}
	if rule.PacingBps == 0 {
		return
	}
	if err := l.sock.control(func(fd int) error { return setPacing(fd, rule.PacingBps) }); err != nil {
		e.limited.warn("the kernel refuses a rule's pacing", "rule", rule.Name, "err", err)
	}
}

// refusal is what a flow that cannot be carried is told.
func refusal(r reason.Code, c wire.Class, text string) []byte {
	m := wire.Refused{Reason: uint32(r), Class: c, Text: text}
	return m.Append(nil)
}
