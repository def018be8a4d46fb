// SPDX-License-Identifier: Apache-2.0

package history

import (
	"container/heap"
	"sync"
	"time"
)

// stallAfter is the default of Senders.SetStall.
const stallAfter = 2 * time.Second

// Senders holds the logs of what was sent to one peer, one log per group of rules. It is safe for concurrent use.
type Senders struct {
	mu     sync.Mutex
	bound  int64
	peer   int64 // the peer's bound in bytes, 0 if unknown
	stall  time.Duration
	epoch  uint64
	groups map[string]*Sender
}

// NewSenders makes an empty set whose logs let references reach back bound bytes each.
func NewSenders(bound int64) *Senders {
	return &Senders{bound: bound, stall: stallAfter, groups: make(map[string]*Sender)}
}

// Group returns the log of a group, which is made at first use.
func (s *Senders) Group(name string) *Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		g = newSender(s.bound)
		g.setPeerBound(s.peer)
		g.stall = s.stall
		s.groups[name] = g
	}
	return g
}

// SetPeerEpoch tells which run of the peer's process is at the other end. A new one holds nothing of what was sent.
func (s *Senders) SetPeerEpoch(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch {
		return
	}
	s.epoch = epoch
	for _, g := range s.groups {
		g.Retire(g.Generation())
	}
}

// SetPeerBound tells how many bytes the peer's logs are configured to hold (Receivers.Bound at the other end, as its hello
// says); references then never reach farther back than both ends hold. 0: the same as here.
func (s *Senders) SetPeerBound(bound int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer = bound
	for _, g := range s.groups {
		g.setPeerBound(bound)
	}
}

// SetStall sets how long a leg without progress may keep other legs' blocks from being recorded, for groups that are used
// for the first time from now on.
func (s *Senders) SetStall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = d
}

// Stats returns the state of every group's log.
func (s *Senders) Stats() map[string]Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[string]Stats, len(s.groups))
	for name, g := range s.groups {
		m[name] = g.Stats()
	}
	return m
}

// Stats describes a log.
type Stats struct {
	Generation uint64 // 0 in a receiver that has got nothing yet
	Head       uint64 // position behind the newest byte
	BoundBytes int64  // how far references may reach back
	HeldBytes  int64  // memory of the ring
	IndexBytes int64  // memory of the anchor index and the interval sets
	KnownBytes int64  // sender: bytes that may be referred to now; receiver: bytes present
}

// A Sender is the log of what was sent to one peer in one group. It is safe for concurrent use; see the package comment for
// why the ring may be read without the lock.
type Sender struct {
	mu         sync.RWMutex
	ring       ring
	own        uint64 // our bound
	bound      uint64 // how far references reach back: the lesser of both ends' bounds
	margin     uint64 // the lesser of both ends' margins
	generation uint64
	base       uint64 // the generation's first position
	head       uint64
	stall      time.Duration // never changes
	acked      spans         // what the peer is known to hold
	open       legHeap
	index      index
}

func newSender(bound int64) *Sender {
	b, segment, size := sizes(bound)
	s := &Sender{ring: newRing(segment, size), own: b, bound: b, margin: size - b, index: newIndex(size, nil),
		generation: uint64(time.Now().UnixNano())}
	// Holes come from aborted legs only; forgetting the oldest range costs a repetition, not correctness.
	s.acked.max = spansFor(size)
	// Position 0 means "none" in the index.
	s.head, s.base = 1, 1
	return s
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
	if generation != s.generation {
		return
	}
	s.generation = max(s.generation+1, uint64(time.Now().UnixNano()))
	s.base = s.head
	s.acked.clear()
}

// Stats returns the state of the log.
func (s *Sender) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{Generation: s.generation, Head: s.head, BoundBytes: int64(s.bound), HeldBytes: s.ring.held,
		IndexBytes: s.index.bytes() + s.acked.bytes()}
	st.KnownBytes = s.acked.count()
	return st
}

// Leg joins the log with a connection. The caller ends it with Close.
func (s *Sender) Leg() *Leg { return &Leg{s: s, at: -1} }

// Lookup finds for each anchor the positions in [low, head) where the bytes may be the same.
func (s *Sender) Lookup(samples []Sample, low uint64, dst []Candidates) []Candidates {
	s.mu.RLock()
	defer s.mu.RUnlock()
	low = max(low, s.base)
	for _, a := range samples {
		dst = append(dst, s.index.lookup(a.Hash, low, s.head))
	}
	return dst
}

// Insert enters the anchors of a block recorded at pos.
func (s *Sender) Insert(samples []Sample, pos uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range samples {
		s.index.insert(a.Hash, pos+uint64(a.At), s.head)
	}
}

// Forward counts how many bytes from pos on equal data's; Backward how many before pos equal data's last. The caller has
// begun a block that is not yet acknowledged, and pos and the length lie within its Place and what Extent allowed.
func (s *Sender) Forward(pos uint64, data []byte) int { return s.ring.forward(pos, data) }

// Backward is described with Forward.
func (s *Sender) Backward(pos uint64, data []byte) int { return s.ring.backward(pos, data) }

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
	*h = old[:len(old)-1]
	l.at = -1
	return l
}

var _ heap.Interface = (*legHeap)(nil)
