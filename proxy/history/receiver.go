// SPDX-License-Identifier: Apache-2.0

package history

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
)

// maxGroups bounds the logs that a peer can make us hold: the names of groups are the peer's.
const maxGroups = 64

// Errors of a reference that cannot be followed.
var (
	ErrGeneration = errors.New("unknown generation")
	ErrAbsent     = errors.New("range is not held")
)

// Receivers holds the logs of what one peer has sent, one log per group. It is safe for concurrent use. Its memory is bounded by
// our own configuration, whatever the peer sends.
type Receivers struct {
	epoch uint64
	bound int64

	mu   sync.Mutex
	peer uint64 // epoch of the peer's process, 0: not known
	logs map[string]*Receiver
	tick uint64 // counts the uses of logs, to find the one unused for longest
}

// NewReceivers makes an empty set of logs that hold bound bytes each, and a margin for what is in flight.
func NewReceivers(bound int64) *Receivers {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return &Receivers{epoch: binary.LittleEndian.Uint64(b[:]) | 1, bound: bound, logs: make(map[string]*Receiver)}
}

// Epoch is a random number of this set, never 0, to be told to the peer: a peer that knows another one knows that its history is gone.
func (r *Receivers) Epoch() uint64 { return r.epoch }

// Bound is what NewReceivers was given, in bytes, to be told to the peer.
func (r *Receivers) Bound() int64 { return r.bound }

// SetPeerEpoch tells which run of the peer's process is at the other end. A new one has other positions, so all logs are dropped.
func (r *Receivers) SetPeerEpoch(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peer != 0 && r.peer != epoch {
		clear(r.logs)
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
		l = newReceiver(r)
		r.logs[group] = l
	}
	l.users++
	l.used = r.tick
	return l
}

// evict drops the log that has been unused for longest.
func (r *Receivers) evict() bool {
	name, found := "", false
	for n, l := range r.logs {
		if l.users == 0 && (!found || l.used < r.logs[name].used) {
			name, found = n, true
		}
	}
	delete(r.logs, name)
	return found
}

// Stats returns the state of every group's log.
func (r *Receivers) Stats() map[string]Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[string]Stats, len(r.logs))
	for name, l := range r.logs {
		m[name] = l.stats()
	}
	return m
}

// A Receiver is the log of what one peer has sent in one group.
type Receiver struct {
	set   *Receivers
	users int    // legs that have it open; guarded by set.mu
	used  uint64 // set.tick at the last Open; guarded by set.mu

	mu         sync.RWMutex
	ring       ring
	bound      uint64
	generation uint64
	head       uint64
	present    spans
}

func newReceiver(set *Receivers) *Receiver {
	b, segment, size := sizes(set.bound)
	return &Receiver{set: set, ring: newRing(segment, size), bound: b, present: spans{max: spansFor(size)}}
}

// Close gives the log back.
func (r *Receiver) Close() {
	r.set.mu.Lock()
	r.users--
	r.set.mu.Unlock()
}

// Read copies the bytes from pos on, if all of them are held for that generation.
func (r *Receiver) Read(generation, pos uint64, dst []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if generation != r.generation {
		return ErrGeneration
	}
	end := pos + uint64(len(dst))
	if end < pos || !r.present.contains(pos, end) {
		return ErrAbsent
	}
	r.ring.read(pos, dst)
	return nil
}

// Write stores a block. A new generation replaces the one held; a block of an older one, or one that lies so far back that the
// ring has gone past it, is not stored.
func (r *Receiver) Write(generation, pos uint64, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := pos + uint64(len(data))
	if generation < r.generation || end < pos || end > MaxPos {
		return
	}
	if generation > r.generation {
		r.generation, r.head = generation, 0
		r.present.clear()
	}
	r.head = max(r.head, end)
	if r.head > r.ring.size {
		if pos < r.head-r.ring.size {
			return
		}
		r.present.trim(r.head - r.ring.size)
	}
	r.ring.grow(pos, len(data))
	r.ring.write(pos, data)
	r.present.add(pos, end)
}

func (r *Receiver) stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Stats{Generation: r.generation, Head: r.head, BoundBytes: int64(r.bound), HeldBytes: r.ring.held,
		IndexBytes: r.present.bytes(), KnownBytes: r.present.count()}
}
