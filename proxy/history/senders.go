// SPDX-License-Identifier: Apache-2.0

package history

import (
	"sync"
	"time"
)

// stallAfter is the default of Senders.SetStall.
const stallAfter = 2 * time.Second

// Senders holds the logs of what was sent to one peer, one log per group of rules. It is safe for concurrent use.
type Senders struct {
	store *Store // nil: in memory, without a bound on all logs together
	place place

	mu     sync.Mutex
	bound  int64
	peer   int64 // the peer's bound in bytes, 0 if unknown
	stall  time.Duration
	epoch  uint64
	groups map[string]*Sender
}

// NewSenders makes an empty set in memory whose logs let references reach back bound bytes each.
func NewSenders(bound int64) *Senders {
	return &Senders{bound: bound, stall: stallAfter, groups: make(map[string]*Sender)}
}

// Group returns the log of a group, which is made at first use.
func (s *Senders) Group(name string) *Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		g = newSender(s.store, s.place.group(name), s.bound)
		g.setPeerBound(s.peer)
		g.stall = s.stall
		s.groups[name] = g
	}
	return g
}

// SetPeerEpoch tells which memory is at the other end. Another one than before holds nothing of what was sent.
func (s *Senders) SetPeerEpoch(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.epoch
	s.epoch = epoch
	if before == epoch || before == 0 {
		return // at first the peer's reports say what it holds
	}
	for _, g := range s.groups {
		g.Retire(g.Generation())
	}
}

// SetPeerBound tells how many bytes the peer's logs are configured to hold (Receivers.Bound at the other end, as its hello
// says); references then never reach farther back than both ends hold. 0: the same as here.
func (s *Senders) SetPeerBound(bound int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer == bound {
		return
	}
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

// Hold takes in what the peer says that it holds of a group. What it does not name it does not hold, but for what has been
// acknowledged since.
func (s *Senders) Hold(r Report) {
	if g := s.known(r.Group); g != nil {
		g.hold(r)
	}
}

// Lack takes in what the peer says that it holds no longer.
func (s *Senders) Lack(r Report) {
	if g := s.known(r.Group); g != nil {
		g.lack(r)
	}
}

// HoldOnly tells that the peer holds nothing of groups that are not in this set.
func (s *Senders) HoldOnly(groups map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, g := range s.groups {
		if !groups[name] {
			g.hold(Report{Group: name})
		}
	}
}

func (s *Senders) known(group string) *Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group]
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

func (s *Senders) all() []*Sender {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := make([]*Sender, 0, len(s.groups))
	for _, g := range s.groups {
		l = append(l, g)
	}
	return l
}
