// SPDX-License-Identifier: Apache-2.0

package history

import (
	"container/heap"
	"time"
)

// A Leg is one connection's share in a Sender's log: the blocks it has sent that are not yet acknowledged. Record, Sent,
// Extent and the comparisons belong to the goroutine that encodes; the rest may be called from any.
type Leg struct {
	s *Sender
	// All below is guarded by s.mu.
	pending spans     // ranges recorded and not yet acknowledged, one block at least
	ready   uint64    // the part of pending below it has been sent, and so may be referred to by this leg
	at      int       // place in s.open, -1: none
	moved   time.Time // when low() last changed
	busy    bool      // a block is being encoded: the ring is being read without the lock
	closed  bool

	expelled []expelled // bytes of unacknowledged blocks that are no longer in the log
	void     uint64     // blocks of this leg below it were expelled
}

// A Place is where a block is recorded.
type Place struct {
	Generation uint64
	Pos        uint64
	Low        uint64 // references of the block must not go below
	Stale      uint64 // what lies below is about to be overwritten: its anchors are worth entering anew
}

func (l *Leg) low() uint64 { return l.pending.live()[0].lo }

// Record copies a block into the log. It returns false when the block has to go unrecorded, because too much is in flight.
// Every Record that returned true is followed by Sent.
func (l *Leg) Record(data []byte) (Place, bool) {
	s, n := l.s, uint64(len(data))
	s.mu.Lock()
	if !s.room(n) || l.closed {
		s.mu.Unlock()
		return Place{}, false
	}
	p := Place{Generation: s.generation, Pos: s.head, Low: s.base}
	if s.head > s.bound {
		p.Low = max(p.Low, s.head-s.bound)
	}
	if s.head > s.bound/4 {
		p.Stale = s.head - s.bound/4
	}
	s.ring.grow(s.head, len(data))
	s.head += n
	l.busy = true
	l.ready = p.Pos
	first := l.pending.empty()
	l.pending.add(p.Pos, s.head)
	if first {
		l.moved = time.Now()
		heap.Push(&s.open, l)
	}
	s.mu.Unlock()
	// The range is this leg's alone, and what it overwrites is below all that anybody may read.
	s.ring.write(p.Pos, data)
	return p, true
}

// room tells whether n more bytes may be recorded, and expels stalled legs that stand in the way.
func (s *Sender) room(n uint64) bool {
	for len(s.open) > 0 {
		l := s.open[0]
		if s.head+n-l.low() <= s.margin {
			return true
		}
		if l.busy || time.Since(l.moved) < stallAfter {
			return false
		}
		l.expel()
	}
	return n <= s.margin
}

// expel moves the bytes of all unacknowledged blocks out of the log and gives their ranges up for good.
func (l *Leg) expel() {
	for _, r := range l.pending.live() {
		data := make([]byte, r.hi-r.lo)
		l.s.ring.read(r.lo, data)
		l.expelled = append(l.expelled, expelled{r.lo, data})
		l.void = r.hi
	}
	l.pending.clear()
	heap.Remove(&l.s.open, l.at)
}

type expelled struct {
	pos  uint64
	data []byte
}

// Sent tells that the block last recorded is encoded: the ring is read no more for it, and once the payload is on the way
// later blocks of this leg may refer to it.
func (l *Leg) Sent() {
	l.s.mu.Lock()
	l.busy = false
	l.s.mu.Unlock()
}

// Extent returns the range around pos that the block last recorded may refer to: the peer has acknowledged it, or this leg
// has sent it before. ok is false if there is none.
func (l *Leg) Extent(pos uint64) (lo, hi uint64, ok bool) {
	s := l.s
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pos < s.base {
		return 0, 0, false
	}
	r, ok := s.acked.find(pos)
	if !ok && pos < l.ready {
		r, ok = l.pending.find(pos)
		r.hi = min(r.hi, l.ready)
	}
	return max(r.lo, s.base), r.hi, ok
}

// Acknowledge tells that the peer holds the leg's oldest recorded block, [pos, pos+n).
func (l *Leg) Acknowledge(pos uint64, n int) {
	s, end := l.s, pos+uint64(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return
	}
	if pos < l.void {
		for len(l.expelled) > 0 && l.expelled[0].end() <= end {
			l.expelled = l.expelled[1:]
		}
		return
	}
	l.release(end)
	if pos >= s.base {
		s.acked.add(pos, end)
		if s.head > s.bound {
			s.acked.trim(s.head - s.bound)
		}
	}
}

func (e expelled) end() uint64 { return e.pos + uint64(len(e.data)) }

// release takes what lies below pos out of pending.
func (l *Leg) release(pos uint64) {
	l.pending.trim(pos)
	l.moved = time.Now()
	if l.at < 0 {
		return
	}
	if l.pending.empty() {
		heap.Remove(&l.s.open, l.at)
	} else {
		heap.Fix(&l.s.open, l.at)
	}
}

// Current tells whether pos belongs to the current generation and is still part of the log.
func (l *Leg) Current(pos uint64) (generation uint64, ok bool) {
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	return l.s.generation, pos >= l.s.base && pos >= l.void
}

// Read copies the bytes of an unacknowledged block of this leg.
func (l *Leg) Read(pos uint64, dst []byte) {
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	if pos >= l.void {
		l.s.ring.read(pos, dst)
		return
	}
	for _, e := range l.expelled {
		if pos >= e.pos && pos < e.end() {
			copy(dst, e.data[pos-e.pos:])
			return
		}
	}
}

// Close leaves the log: what is not acknowledged is void.
func (l *Leg) Close() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if !l.closed && l.at >= 0 {
		heap.Remove(&l.s.open, l.at)
	}
	l.pending.clear()
	l.expelled, l.closed = nil, true
}
