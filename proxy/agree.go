// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"time"

	"github.com/trunkline/trunkline/proxy/history"
	"github.com/trunkline/trunkline/proxy/wire"
)

// agreement is what one end of a control connection learns of what the other end holds. It belongs to the connection's reader.
type agreement struct {
	p     *peer
	named map[string]bool // groups that the peer holds something of
	done  chan struct{}   // closed when the peer has named all
}

func newAgreement(p *peer) agreement {
	return agreement{p: p, named: map[string]bool{}, done: make(chan struct{})}
}

// take takes a RANGES in, and tells whether it was the first that names all.
func (a *agreement) take(payload []byte) (first bool, err error) {
	m, err := wire.ParseRanges(payload)
	if err != nil {
		return false, err
	}
	senders := a.p.memory.Senders
	r := history.Report{Group: m.Group, Generation: m.Generation, Head: m.Head}
	for _, s := range m.Spans {
		r.Spans = append(r.Spans, history.Span(s))
	}
	switch m.Kind {
	case wire.RangesHold:
		senders.Hold(r)
		if len(a.named) < maxGroups {
			a.named[m.Group] = true
		}
	case wire.RangesLack:
		senders.Lack(r)
	case wire.RangesEnd:
		select {
		case <-a.done:
			return false, fmt.Errorf("%w: RANGES ended twice", wire.ErrMalformed)
		default:
		}
		senders.HoldOnly(a.named)
		close(a.done)
		return true, nil
	}
	return false, nil
}

// tellHolds tells the peer all that is held here of what it has sent.
func (p *peer) tellHolds(l *leg) error {
	for _, r := range p.memory.Receivers.Holds() {
		if err := p.tellRanges(l, wire.RangesHold, r); err != nil {
			return err
		}
	}
	return p.tellRanges(l, wire.RangesEnd, history.Report{})
}

// tellLacks tells the peer what has gone since.
func (p *peer) tellLacks(l *leg) error {
	for _, r := range p.memory.Receivers.Lacks() {
		if err := p.tellRanges(l, wire.RangesLack, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) tellRanges(l *leg, kind wire.RangesKind, r history.Report) error {
	m := wire.Ranges{Kind: kind, Group: r.Group, Generation: r.Generation, Head: r.Head}
	for _, s := range r.Spans {
		m.Spans = append(m.Spans, wire.Span(s))
	}
	l.sock.SetWriteDeadline(time.Now().Add(p.e.cfg.Timeouts.Pong))
	return l.send(wire.TypeRanges, m.Append(nil))
}

// agree has both ends of a control connection that was dialled here know what the other one holds. The peer answers when it has
// taken in what it was told, so that afterwards flows either way find the histories as they are.
func (c *pinger) agree(l *leg) error {
	if err := c.p.tellHolds(l); err != nil {
		return err
	}
	timeout := time.NewTimer(c.p.e.cfg.Timeouts.Pong)
	defer timeout.Stop()
	select {
	case <-c.done:
		return nil
	case err := <-c.broken:
		return fmt.Errorf("control connection ended: %w", err)
	case <-timeout.C:
		return fmt.Errorf("the peer does not say what it holds, for %v", c.p.e.cfg.Timeouts.Pong)
	}
}

// keepTelling tells the peer what goes, until the connection ends.
func (p *peer) keepTelling(l *leg, end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-p.memory.Receivers.News():
			if err := p.tellLacks(l); err != nil {
				l.close() // the next connection begins with all
				return
			}
		}
	}
}
