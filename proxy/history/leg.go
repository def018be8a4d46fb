// SPDX-License-Identifier: Apache-2.0

package history

import (
	"container/heap"
	"errors"
	"time"
)

// A Leg is one connection's share in a Sender's log: the blocks it has sent that are not yet acknowledged. Begin, Record,
// Done, Extent and the comparisons belong to the goroutine that encodes; the rest may be called from any.
type Leg struct {
	s *Sender
	// All below is guarded by s.mu.
	pins    fifo      // of each unacknowledged block, where the head was when it was begun
	pending spans     // ranges recorded and not yet acknowledged
	begun   uint64    // the generation of the block that is being encoded
	at      int       // place in s.open, -1: none
	moved   time.Time // when low() last changed
	busy    bool      // a block is being encoded
	compare bool      // and is being compared: the ring is being read without the lock
	closed  bool

	expelled []expelled // bytes of unacknowledged blocks that are no longer in the log
	void     uint64     // ranges of this leg below it were expelled
	skip     int        // unacknowledged blocks that were expelled: the oldest ones
}

// expelled is a range of bytes that was taken out of the log.
type expelled struct {
	pos  uint64
	data []byte
}

func (e expelled) end() uint64 { return e.pos + uint64(len(e.data)) }

// A Place is what a block may refer to.
type Place struct {
	Generation uint64
	Head       uint64 // position behind the newest byte
	Low        uint64 // references must not go below
	Stale      uint64 // what lies below is going to be overwritten before long: if it is sent again, it is worth recording again
}

func (l *Leg) low() uint64 { return l.pins.front() }

// Begin pins the log for a block, until the block is acknowledged: what the place allows to refer to stays there, at both
// ends. Every Begin is followed by Done.
func (l *Leg) Begin() Place {
	s := l.s
	s.ring.pool.tick()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost()
	p := Place{Generation: s.generation, Head: s.head, Low: s.base}
	if s.broken != nil {
		p.Low = s.head
	}
	if s.head > s.bound {
		p.Low = max(p.Low, s.head-s.bound)
	}
	if s.head > s.bound/4 {
		p.Stale = s.head - s.bound/4
	}
	l.busy, l.begun = true, s.generation
	if !l.compare {
		l.compare = true
		s.comparing++
	}
	l.pins.push(s.head)
	if l.at < 0 {
		l.moved = time.Now()
		heap.Push(&s.open, l)
	}
	return p
}

// Record copies the block last begun into the log; for the block nothing is compared any more. It returns false when the block
// has to go unrecorded, because too much is in flight, its generation has just been retired, or there is no room.
func (l *Leg) Record(data []byte) (pos uint64, ok bool) {
	s, n := l.s, uint64(len(data))
	for try := 0; ; try++ {
		l.makeRoom(len(data))
		s.mu.Lock()
		if l.begun != s.generation || !s.usable(s.head+n) || !s.room(n) {
			s.mu.Unlock()
			return 0, false
		}
		err := s.ring.grow(s.head, len(data))
		if err == nil {
			break
		}
		s.mu.Unlock()
		if !errors.Is(err, errNoRoom) || try == 3 { // another leg may have been faster
			s.full(err)
			return 0, false
		}
	}
	pos = s.head
	s.head += n
	s.held.add(pos, s.head)
	s.trim()
	s.enter(change{lo: pos, hi: s.head})
	l.pending.add(pos, s.head)
	s.mu.Unlock()
	// The range is this leg's alone, and what it overwrites is below all that anybody may read.
	return pos, s.ring.write(pos, data)
}

// makeRoom gives segments of other logs, or old ones of this one, back for n more bytes.
func (l *Leg) makeRoom(n int) {
	s := l.s
	grows := s.growing.Load()
	if grows == 0 && s.ring.held.Load() == int64(s.ring.size) {
		return
	}
	s.mu.RLock()
	need := grows + s.ring.lacks(s.head, n)
	s.mu.RUnlock()
	if need == 0 || s.ring.pool.fits(need) {
		return
	}
	s.mu.Lock()
	l.endCompare()
	s.mu.Unlock()
	s.ring.pool.reserve(need)
}

func (l *Leg) endCompare() {
	if l.compare {
		l.compare = false
		l.s.comparing--
	}
}

// Done tells that the block last begun is encoded: the ring is read no more for it.
func (l *Leg) Done() {
	l.s.mu.Lock()
	l.busy = false
	l.endCompare()
	l.s.mu.Unlock()
}

// room tells whether n more bytes may be recorded, and expels stalled legs that stand in the way.
func (s *Sender) room(n uint64) bool {
	for len(s.open) > 0 {
		l := s.open[0]
		if s.head+n-l.low() <= s.margin {
			return true
		}
		if l.busy || time.Since(l.moved) < s.stall {
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
		if l.s.ring.read(r.lo, data) {
			l.expelled = append(l.expelled, expelled{r.lo, data})
		}
		l.void = r.hi
	}
	l.pending.clear()
	l.skip += l.pins.len()
	l.pins.clear()
	heap.Remove(&l.s.open, l.at)
}

// Extent returns the range around pos that the block last begun may refer to: the peer has acknowledged it, or this leg
// has sent it before. ok is false if there is none.
func (l *Leg) Extent(pos uint64) (lo, hi uint64, ok bool) {
	s := l.s
	s.mu.RLock()
	defer s.mu.RUnlock()
	if pos < s.base {
		return 0, 0, false
	}
	r, ok := s.acked.find(pos)
	if !ok {
		r, ok = l.pending.find(pos)
	}
	return max(r.lo, s.base), r.hi, ok
}

// Acknowledge tells that the peer holds the leg's oldest block. If that was recorded, n is its length and pos its place.
func (l *Leg) Acknowledge(pos uint64, n int) {
	s, end := l.s, pos+uint64(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return
	}
	if l.skip > 0 {
		l.skip--
		for len(l.expelled) > 0 && l.expelled[0].end() <= end {
			l.expelled = l.expelled[1:]
		}
		return
	}
	l.pins.pop()
	l.pending.trim(end)
	l.moved = time.Now()
	if l.pins.len() == 0 {
		heap.Remove(&s.open, l.at)
	} else {
		heap.Fix(&s.open, l.at)
	}
	if n > 0 && pos >= s.base && s.broken == nil {
		s.acked.add(pos, end)
		for _, gone := range intersect(s.lacking.live(), []span{{pos, end}}) {
			s.acked.remove(gone.lo, gone.hi)
		}
		s.trim()
	}
}

// Current returns the generation, and tells whether pos belongs to it and is still part of the log.
func (l *Leg) Current(pos uint64) (generation uint64, ok bool) {
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	return l.s.generation, pos >= l.s.base && pos >= l.void
}

// Read copies the bytes of an unacknowledged recorded block of this leg. It returns false if the disk has lost them: then the
// block cannot be sent again.
func (l *Leg) Read(pos uint64, dst []byte) bool {
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	if pos >= l.void {
		return !l.s.closed && !l.s.ring.lost.Load() && l.s.ring.read(pos, dst)
	}
	for _, e := range l.expelled {
		if pos >= e.pos && pos+uint64(len(dst)) <= e.end() {
			copy(dst, e.data[pos-e.pos:])
			return true
		}
	}
	return false
}

// Close leaves the log: what is not acknowledged is void.
func (l *Leg) Close() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if !l.closed && l.at >= 0 {
		heap.Remove(&l.s.open, l.at)
	}
	l.endCompare()
	l.pending, l.pins = spans{}, fifo{}
	l.expelled, l.closed = nil, true
}

// A fifo is a queue of positions.
type fifo struct {
	all []uint64
	off int
}

func (f *fifo) len() int        { return len(f.all) - f.off }
func (f *fifo) front() uint64   { return f.all[f.off] }
func (f *fifo) push(pos uint64) { f.all = append(f.all, pos) }
func (f *fifo) clear()          { f.all, f.off = f.all[:0], 0 }
func (f *fifo) pop() {
	if f.off++; f.off*2 >= len(f.all) {
		f.all, f.off = f.all[:copy(f.all, f.all[f.off:])], 0
	}
}
