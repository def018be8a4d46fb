// SPDX-License-Identifier: Apache-2.0

package history

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// maxGroups bounds the logs that a peer can make us hold: the names of groups are the peer's.
const maxGroups = 64

// Receivers holds the logs of what one peer has sent, one log per group. It is safe for concurrent use. Its memory is bounded by
// our own configuration, whatever the peer sends.
type Receivers struct {
	store *Store // nil: in memory, without a bound on all logs together
	place place
	epoch uint64
	bound int64
	news  chan struct{}

	mu   sync.Mutex
	peer uint64 // epoch of the peer's memory, 0: not known
	logs map[string]*Receiver
	tick uint64 // counts the uses of logs, to find the one unused for longest
}

// NewReceivers makes an empty set of logs in memory that hold bound bytes each, and a margin for what is in flight.
func NewReceivers(bound int64) *Receivers {
	return &Receivers{epoch: newEpoch(), bound: bound, logs: make(map[string]*Receiver), news: make(chan struct{}, 1)}
}

func newEpoch() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Epoch is a random number of this end's memory of the peer, never 0, to be told to the peer: if the peer knew another one, what it
// knew of is gone.
func (r *Receivers) Epoch() uint64 { return r.epoch }

// Bound is what NewReceivers was given, in bytes, to be told to the peer.
func (r *Receivers) Bound() int64 { return r.bound }

// SetPeerEpoch tells which memory is at the other end. Another one than before has other positions, so all logs are emptied.
func (r *Receivers) SetPeerEpoch(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer != 0 && r.peer != epoch {
		for _, l := range r.logs {
			l.purge()
		}
	}
	r.peer = epoch
}

// Open returns the log of a group for one leg, to be given back with Close. It returns nil when too many groups are in use at once.
func (r *Receivers) Open(group string) *Receiver {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	l := r.logs[group]
	if l == nil {
		if len(r.logs) >= maxGroups && !r.evict() {
			return nil
		}
		l = newReceiver(r, r.place.group(group))
		r.logs[group] = l
	}
	l.users++
	l.used = r.tick
	return l
}

// evict drops the log that has been unused for longest.
func (r *Receivers) evict() bool {
	var oldest *Receiver
	for _, l := range r.logs {
		if l.users == 0 && (oldest == nil || l.used < oldest.used) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	delete(r.logs, oldest.group)
	oldest.ring.pool.remove(oldest)
	oldest.destroy()
	return true
}

// News gets a value when Lacks has something to tell the peer.
func (r *Receivers) News() <-chan struct{} { return r.news }

func (r *Receivers) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Holds reports what is held of every group.
func (r *Receivers) Holds() []Report {
	var reports []Report
	for _, l := range r.all() {
		reports = append(reports, l.hold())
	}
	return reports
}

// Lacks reports what has gone since it was called last, without the peer's doing.
func (r *Receivers) Lacks() []Report {
	var reports []Report
	for _, l := range r.all() {
		if report, any := l.lack(); any {
			reports = append(reports, report)
		}
	}
	return reports
}

// Stats returns the state of every group's log.
func (r *Receivers) Stats() map[string]Stats {
	m := map[string]Stats{}
	for _, l := range r.all() {
		m[l.group] = l.Stats()
	}
	return m
}

func (r *Receivers) all() []*Receiver {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Receiver, 0, len(r.logs))
	for _, l := range r.logs {
		all = append(all, l)
	}
	return all
}
