// SPDX-License-Identifier: Apache-2.0

package history

import (
	"container/heap"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// A Sender is the log of what was sent to one peer in one group. It is safe for concurrent use; see the package comment for
// why the ring may be read without the lock.
type Sender struct {
	log
	index     index
	bound     uint64 // how far references reach back: the lesser of both ends' bounds
	margin    uint64 // the lesser of both ends' margins
	stall     time.Duration
	acked     spans        // what the peer is known to hold, too
	lacking   spans        // what the peer has said is gone: an acknowledgement that comes later does not bring it back
	open      legHeap      // those with unacknowledged recorded blocks
	comparing int          // legs that may be reading the ring without the lock
	growing   atomic.Int64 // bytes that the index takes when it grows next, if that is soon
}

// newSender makes the log of a group, or goes on with what is kept of it.
func newSender(s *Store, place place, bound int64) *Sender {
	g := &Sender{stall: stallAfter}
	g.init(s, place, bound, sent)
	if g.generation == 0 {
		g.generation = uint64(time.Now().UnixNano())
		// Position 0 means "none" in the index.
		g.head, g.base = 1, 1
	}
	if g.disk != nil {
		g.index, g.table = openIndex(g.disk.dir, g.ring.size, g.ring.pool, true)
	} else {
		g.index = newIndex(g.ring.size, nil)
	}
	// Holes come from aborted legs only; forgetting the oldest range costs a repetition, not correctness.
	g.acked.max = spansFor(g.ring.size)
	g.lacking.max = maxGone
	g.setPeerBound(0)
	g.start()
	g.ring.pool.add(g)
	return g
}

func spansFor(ring uint64) int { return 4096 + int(ring>>14) }

func (s *Sender) setPeerBound(bound int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound, s.margin = s.own, s.ring.size-s.own
	if bound > 0 {
		b, _, size := sizes(bound)
		s.bound, s.margin = min(s.bound, b), min(s.margin, size-b)
	}
}

// Generation returns the current generation.
func (s *Sender) Generation() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.generation
}

// Retire ends a generation: nothing recorded so far is referred to any more. A generation that is not the current one has
// been retired already.
func (s *Sender) Retire(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation == s.generation {
		s.retire(0)
	}
}

// retire begins a generation that is later than the present one and than another one; the lock is held.
func (s *Sender) retire(other uint64) {
	s.generation = max(s.generation+1, other+1, uint64(time.Now().UnixNano()))
	s.base = s.head
	s.acked.clear()
	s.held.clear()
	s.persist()
}

// hold takes note of what the peer says that it holds: all of it, as of when it said so.
func (s *Sender) hold(r Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Generation != s.generation {
		s.acked.clear()
		if r.Generation > s.generation && r.Generation < maxGeneration {
			s.retire(r.Generation) // else the peer would take what is recorded now for older than what it has
		}
		return
	}
	told := make([]span, 0, len(r.Spans))
	for _, p := range r.Spans {
		told = append(told, span{p.Low, p.High})
	}
	both := spans{all: intersect(s.held.live(), told), max: s.acked.max}
	for _, a := range s.acked.live() {
		both.add(max(a.lo, r.Head), a.hi) // acknowledged since
	}
	s.acked = both
	s.trim()
}

// lack takes note of ranges that the peer holds no longer.
func (s *Sender) lack(r Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Generation != s.generation {
		return
	}
	for _, p := range r.Spans {
		s.acked.remove(p.Low, p.High)
		s.lacking.add(p.Low, p.High)
	}
}

// lost ends a log whose ring or index cannot be accessed any more; the lock is held.
func (s *Sender) lost() {
	if s.ring.lost.Load() {
		s.lose()
		s.acked.clear()
	}
}

// trim takes what lies too far back out of what is known; the lock is held.
func (s *Sender) trim() {
	if s.head > s.ring.size {
		s.held.trim(s.head - s.ring.size)
	}
	low := s.base
	if s.head > s.bound {
		low = max(low, s.head-s.bound)
	}
	s.acked.trim(low)
	s.lacking.trim(low)
}

// Stats returns the state of the log.
func (s *Sender) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.stats()
	st.BoundBytes, st.KnownBytes = int64(s.bound), s.acked.count()
	st.IndexBytes = s.index.bytes() + s.acked.bytes() + s.held.bytes()
	return st
}

// Leg joins the log with a connection. The caller ends it with Close.
func (s *Sender) Leg() *Leg { return &Leg{s: s, at: -1} }

// Lookup finds for each anchor the positions in [low, head) where the bytes may be the same.
func (s *Sender) Lookup(samples []Sample, low uint64, dst []Candidates) []Candidates {
	n := len(dst)
	s.mu.RLock()
	defer s.mu.RUnlock()
	low = max(low, s.base)
	if s.table == nil {
		return s.lookup(samples, low, dst)
	}
	if !s.access(func() { dst = s.lookup(samples, low, dst[:n]) }) {
		dst = append(dst[:n], make([]Candidates, len(samples))...)
	}
	return dst
}

func (s *Sender) lookup(samples []Sample, low uint64, dst []Candidates) []Candidates {
	for _, a := range samples {
		dst = append(dst, s.index.lookup(a.Hash, low, s.head))
	}
	return dst
}

// insertBatch is for how many anchors the buckets are fetched at once: waiting for one at a time costs more than all the rest.
const insertBatch = 32

// Insert enters the anchors of a block recorded at pos.
func (s *Sender) Insert(samples []Sample, pos uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.broken != nil {
		return
	}
	s.access(func() {
		for len(samples) > 0 {
			n := min(len(samples), insertBatch)
			s.index.touch(samples[:n])
			for _, a := range samples[:n] {
				s.index.insert(a.Hash, pos+uint64(a.At), s.head)
			}
			samples = samples[n:]
		}
	})
	grows := int64(0)
	if n := len(s.index.entries); s.table != nil && s.index.used > n/8*3 && int(s.index.mask)+1 < s.index.most {
		grows = 2*s.index.bytes() + indexHeader
	}
	s.growing.Store(grows)
}

// access runs what works on the index, which may be in a file whose disk fails; then it returns false, and the log is lost.
func (s *Sender) access(work func()) (ok bool) {
	if s.table == nil {
		work()
		return true
	}
	if s.closed {
		return false
	}
	before := debug.SetPanicOnFault(true)
	defer func() { ok = s.ring.survived(before, recover()) && ok }()
	work()
	return true
}

// Forward counts how many bytes from pos on equal data's; Backward how many before pos equal data's last. The caller has
// begun a block and neither recorded it nor ended it, and pos and the length lie within its Place and what Extent allowed.
func (s *Sender) Forward(pos uint64, data []byte) int { return s.ring.forward(pos, data) }

// Backward is described with Forward.
func (s *Sender) Backward(pos uint64, data []byte) int { return s.ring.backward(pos, data) }

// low returns the position from which on blocks may be unacknowledged; the lock is held.
func (s *Sender) low() uint64 {
	if len(s.open) > 0 {
		return s.open[0].low()
	}
	return s.head
}

// oldest implements owner. While anybody may be comparing, nothing may go.
func (s *Sender) oldest() (stamp uint64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed || s.comparing > 0 {
		return 0, false
	}
	i, stamp := s.ring.oldest(s.low(), s.head)
	return stamp, i >= 0
}

// evict implements owner.
func (s *Sender) evict() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.comparing > 0 {
		return false
	}
	i, _ := s.ring.oldest(s.low(), s.head)
	if i < 0 {
		return false
	}
	lo, hi := s.ring.positions(i, s.head)
	s.acked.remove(lo, hi)
	s.drop(i)
	s.shrink()
	return true
}

// shrink begins the index of a log anew that holds nothing.
func (s *Sender) shrink() {
	if s.ring.held.Load() > 0 || s.index.used == 0 {
		return
	}
	if s.table == nil {
		s.index = newIndex(s.ring.size, nil)
		return
	}
	s.index = newIndex(s.ring.size, s.table)
	s.table.drop()
}

// purge forgets all that was sent. Bytes that are not acknowledged stay until they are, or something else needs the room.
func (s *Sender) purge() {
	s.mu.Lock()
	s.retire(0)
	s.mu.Unlock()
	for range 1000 {
		if s.evict() {
			continue
		}
		s.mu.RLock()
		busy := s.comparing > 0
		s.mu.RUnlock()
		if !busy {
			break
		}
		time.Sleep(time.Millisecond) // the block that is being encoded takes no longer
	}
	s.mu.Lock()
	if len(s.open) == 0 && s.comparing == 0 && !s.closed {
		s.ring.clear() // the segment that the head is in, too
		s.shrink()
	}
	s.mu.Unlock()
}

// sync implements kept. Below the lowest pin all bytes are in the ring.
func (s *Sender) sync(clean bool) error { return s.bring(s.low, clean) }

// shut implements kept.
func (s *Sender) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table != nil {
		s.table.save(s.index.used)
	}
	s.close()
}

// legHeap orders the legs that have unacknowledged recorded blocks by the lowest position of these.
type legHeap []*Leg

func (h legHeap) Len() int           { return len(h) }
func (h legHeap) Less(i, j int) bool { return h[i].low() < h[j].low() }
func (h legHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *legHeap) Push(x any)        { l := x.(*Leg); l.at = len(*h); *h = append(*h, l) }
func (h *legHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = slices.Delete(old, len(old)-1, len(old))
	l.at = -1
	return l
}

var _ heap.Interface = (*legHeap)(nil)
