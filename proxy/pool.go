// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trunkline/trunkline/proxy/wire"
)

// maxDials is how many legs are dialled to a peer at once. The accepting end takes more handshakes than that.
const maxDials = 64

var errDown = errors.New("the peer is down")

// maxWindows is for how many different windows legs are kept ready.
const maxWindows = 4

// takeLeg gives a leg with the rule's window to a handler: a warm one, else a fresh one.
func (p *peer) takeLeg(ctx context.Context, rule Rule, h handler) (*leg, error) {
	defer p.fill()
	for l := p.popIdle(rule.WindowBytes); l != nil; l = p.popIdle(rule.WindowBytes) {
		if l.take(h) {
			return l, nil
		}
	}
	return p.freshLeg(ctx, rule.WindowBytes, h)
}

func (p *peer) popIdle(window uint32) *leg {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if l := p.idle[i]; l.rcvbuf == window {
			p.idle = slices.Delete(p.idle, i, i+1)
			return l
		}
	}
	return nil
}

func (p *peer) freshLeg(ctx context.Context, window uint32, h handler) (*leg, error) {
	wait, cancel := context.WithTimeout(ctx, p.e.cfg.Timeouts.Turn)
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
	l, err := p.dialLeg(ctx, wire.KindLeg, window)
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
func (p *peer) tend() {
	p.mu.Lock()
	var old, kept []*leg
	for _, l := range p.idle {
		if time.Since(l.created) > p.e.cfg.Timeouts.LegAge || !p.windows[l.rcvbuf] {
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
	p.fill()
}

// fill dials legs until enough are warm, for each window that rules want.
func (p *peer) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up || p.cancel == nil {
		return
	}
	have := map[uint32]int{}
	for _, l := range p.idle {
		have[l.rcvbuf]++
	}
	for window, wanted := range p.windows {
		for wanted && have[window]+p.filling[window] < p.e.cfg.WarmLegs && p.e.startWork() {
			p.filling[window]++
			go func() {
				defer p.e.wg.Done()
				p.warm(window)
			}()
		}
	}
}

func (p *peer) warm(window uint32) {
	l, err := p.dialLeg(p.e.ctx, wire.KindLeg, window)
	if err == nil {
		p.met(l.hello)
	}
	p.mu.Lock()
	p.filling[window]--
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
	p.idle = slices.DeleteFunc(p.idle, func(other *leg) bool { return other == l })
	p.mu.Unlock()
}

// legRule makes a leg what the rule of its flow says.
func (e *Engine) legRule(l *leg, rule Rule) {
	// Before the kernel side knows the rule: where it chooses by path, its choice goes before the rule's name.
	if err := l.sock.control(func(fd int) error { return setCongestion(fd, rule.Congestion) }); err != nil {
		e.limited.warn("the kernel refuses a rule's congestion control", "rule", rule.Name, "congestion", rule.Congestion, "err", err)
	}
	if err := e.cfg.Kernel.Own(l.sock.cookie, rule.ID, true); err != nil {
		e.limited.warn("entering a leg", "err", err)
	}
	if rule.ID == 0 || rule.PacingBps == 0 {
		return
	}
	if err := l.sock.control(func(fd int) error { return setPacing(fd, rule.PacingBps) }); err != nil {
		e.limited.warn("the kernel refuses a rule's pacing", "rule", rule.Name, "err", err)
	}
}

// wantWindows notes the windows that rules want of legs to the peer.
func (p *peer) wantWindows(rules []Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.windows = map[uint32]bool{}
	for _, r := range rules {
		if r.PeerID == p.cfg.ID && len(p.windows) < maxWindows {
			p.windows[r.WindowBytes] = true
		}
	}
}
