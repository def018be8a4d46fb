// SPDX-License-Identifier: Apache-2.0

package history

import "errors"

// Errors of a reference that cannot be followed.
var (
	ErrGeneration = errors.New("unknown generation")
	ErrAbsent     = errors.New("range is not held")
)

// A Receiver is the log of what one peer has sent in one group.
type Receiver struct {
	log
	set   *Receivers
	users int    // legs that have it open; guarded by set.mu
	used  uint64 // set.tick at the last Open; guarded by set.mu

	gone spans // guarded by mu: what the peer takes this end to hold, and it does not, and has not been told
}

// maxGone is how many ranges that are held no longer are remembered until the peer is told.
const maxGone = 1024

// newReceiver makes the log of a group, or goes on with what is kept of it.
func newReceiver(set *Receivers, place place) *Receiver {
	r := &Receiver{set: set}
	r.init(set.store, place, set.bound, received)
	r.gone.max = maxGone
	r.start()
	r.ring.pool.add(r)
	return r
}

// Close gives the log back.
func (r *Receiver) Close() {
	r.set.mu.Lock()
	r.users--
	r.set.mu.Unlock()
}

// Read copies the bytes from pos on, if all of them are held for that generation.
func (r *Receiver) Read(generation, pos uint64, dst []byte) error {
	r.ring.pool.tick()
	err := r.read(generation, pos, dst)
	if errors.Is(err, ErrAbsent) {
		r.missed(generation, pos, len(dst))
	}
	return err
}

func (r *Receiver) read(generation, pos uint64, dst []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if generation != r.generation {
		return ErrGeneration
	}
	end := pos + uint64(len(dst))
	if end < pos || r.closed || !r.held.contains(pos, end) || !r.ring.read(pos, dst) {
		return ErrAbsent
	}
	return nil
}

// missed notes that the peer has referred to what is not here, so that it is told.
func (r *Receiver) missed(generation, pos uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost()
	if end := pos + uint64(n); end > pos && end <= MaxPos && generation == r.generation {
		for _, h := range subtract(span{pos, end}, r.held.live()) {
			r.gone.add(h.lo, h.hi)
		}
		r.set.tell()
	}
}

// lost ends a log whose ring cannot be accessed any more; the lock is held.
func (r *Receiver) lost() {
	if r.ring.lost.Load() && r.broken == nil {
		all := append([]span(nil), r.held.live()...)
		r.lose()
		for _, h := range all {
			r.gone.add(h.lo, h.hi)
		}
		r.set.tell()
	}
}

// Write stores a block. A new generation replaces the one held; a block of an older one, or one that lies so far back that the
// ring has gone past it, is not stored, and neither is one for which there is no room.
func (r *Receiver) Write(generation, pos uint64, data []byte) {
	r.ring.pool.tick()
	for try := 0; ; try++ {
		if r.ring.held.Load() < int64(r.ring.size) {
			r.mu.RLock()
			need := r.ring.lacks(pos, len(data))
			r.mu.RUnlock()
			r.ring.pool.reserve(need)
		}
		err := r.write(generation, pos, data)
		if err == nil {
			return
		}
		if !errors.Is(err, errNoRoom) || try == 3 {
			r.full(err)
			r.missed(generation, pos, len(data))
			return
		}
	}
}

func (r *Receiver) write(generation, pos uint64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := pos + uint64(len(data))
	if generation < r.generation || end <= pos || end > MaxPos {
		return nil
	}
	if generation > r.generation {
		r.begin(generation, pos)
	}
	if pos < r.low(end) {
		return nil
	}
	if !r.usable(end) {
		return errUnwritable
	}
	if err := r.ring.grow(pos, len(data)); err != nil {
		return err
	}
	if r.head = max(r.head, end); r.head > r.ring.size {
		r.held.trim(r.head - r.ring.size)
	}
	if !r.ring.write(pos, data) {
		r.lost()
		return nil
	}
	r.held.add(pos, end)
	r.enter(change{lo: pos, hi: end})
	return nil
}

// low returns the first position that the ring has room for when the head is at least at end; the lock is held.
func (r *Receiver) low(end uint64) uint64 {
	if head := max(r.head, end); head > r.ring.size {
		return head - r.ring.size
	}
	return 0
}

// begin replaces what is held by a generation whose first block is at pos; the lock is held.
func (r *Receiver) begin(generation, pos uint64) {
	r.generation, r.head, r.base = generation, 0, 0
	r.held.clear()
	r.gone.clear()
	if r.disk != nil && r.disk.ahead < MaxPos {
		// Nothing of the old generation may be taken for one of the new after the machine ends: the note goes before its bytes do.
		r.renote(pos)
	}
	r.persist()
}

// hold reports what is held.
func (r *Receiver) hold() Report {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Report{Group: r.group, Generation: r.generation, Head: r.head, Spans: reported(r.held.live())}
}

// lack reports what has gone since it was asked last.
func (r *Receiver) lack() (report Report, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone.empty() {
		return Report{}, false
	}
	report = Report{Group: r.group, Generation: r.generation, Head: r.head, Spans: reported(r.gone.live())}
	r.gone.clear()
	return report, true
}

// oldest implements owner.
func (r *Receiver) oldest() (stamp uint64, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return 0, false
	}
	i, stamp := r.ring.oldest(r.head, r.head)
	return stamp, i >= 0
}

// evict implements owner.
func (r *Receiver) evict() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	i, _ := r.ring.oldest(r.head, r.head)
	if i < 0 {
		return false
	}
	lo, hi := r.ring.positions(i, r.head)
	for _, h := range intersect(r.held.live(), []span{{lo, hi}}) {
		r.gone.add(h.lo, h.hi)
	}
	r.drop(i)
	r.set.tell()
	return true
}

// purge forgets all that was received.
func (r *Receiver) purge() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, h := range r.held.live() {
		r.gone.add(h.lo, h.hi)
	}
	r.empty()
	r.set.tell()
}

// sync implements kept. Bytes are in the ring before they are present.
func (r *Receiver) sync(clean bool) error { return r.bring(func() uint64 { return MaxPos }, clean) }

// Stats returns the state of the log.
func (r *Receiver) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	st := r.stats()
	st.IndexBytes, st.KnownBytes = r.held.bytes(), r.held.count()
	return st
}
