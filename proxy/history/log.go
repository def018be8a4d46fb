// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"sync"
)

// errLost is the end of a log whose file could not be accessed.
var errLost = errors.New("the disk gave an error, or the file was cut off")

// A log is what both ends' logs have in common.
type log struct {
	direction direction
	group     string
	own       uint64 // bound in bytes that this end gives it
	store     *Store // nil: by itself, in memory

	// Everything below is guarded by mu, but for the bytes in the ring.
	mu         sync.RWMutex
	ring       *ring
	disk       *disk       // nil: in memory
	table      *indexTable // where a sender's index is kept; nil: the heap
	generation uint64
	base       uint64 // the generation's first position
	head       uint64
	held       spans  // of a sender: what is in the ring; of a receiver: what is present
	want       uint64 // how far blocks have wanted to go
	closed     bool
	broken     error // why nothing is recorded

	syncing sync.Mutex // one at a time writes the log to the disk, or throws it away; taken before mu
}

// state is what is written down; the lock is held.
func (l *log) state() state {
	s := state{direction: l.direction, bound: l.own, generation: l.generation, base: l.base, head: l.head, group: l.group,
		held: append([]span(nil), l.held.live()...)}
	if l.disk != nil {
		s.ahead = l.disk.ahead
	}
	return s
}

// enter writes a change of held down that has been made.
func (l *log) enter(c change) {
	if l.disk != nil && !l.disk.enter(c) {
		l.persist()
	}
}

// persist writes all of the log's state down.
func (l *log) persist() {
	if l.disk == nil || l.disk.err != nil {
		return
	}
	l.disk.dirty = true
	if err := l.disk.rewrite(l.state()); err != nil {
		l.disk.abandon(err)
		l.store.warn("a history is no longer kept over a restart", "group", l.group, "err", err)
	}
}

// usable tells whether blocks that end at a position may be recorded.
func (l *log) usable(end uint64) bool {
	if l.closed || l.broken != nil {
		return false
	}
	d := l.disk
	if d == nil || d.err != nil {
		return true
	}
	if end+slack(l.ring.size)/2 > d.ahead {
		l.want = max(l.want, end)
		d.dirty = true
		l.store.kick()
	}
	return end <= d.ahead
}

// slack is how many bytes are recorded at most between two notes: those of the oldest bytes that are not trusted after the
// machine has ended without notice.
func slack(ring uint64) uint64 { return max(ring/4, 64<<20) }

// drop gives segment i of the ring back; the lock is held.
func (l *log) drop(i int) {
	lo, hi := l.ring.positions(i, l.head)
	l.held.remove(lo, hi)
	l.enter(change{lo: lo, hi: hi, drop: true})
	l.ring.free(i)
}

// empty forgets all that the log holds; the lock is held, and nobody reads the ring.
func (l *log) empty() {
	l.held.clear()
	l.persist()
	l.ring.clear()
}

// lose ends a log whose ring cannot be accessed any more; the lock is held.
func (l *log) lose() {
	if l.broken != nil || !l.ring.lost.Load() {
		return
	}
	l.broken = errLost
	l.held.clear()
	if l.disk != nil {
		l.disk.abandon(errLost)
	}
	l.store.warn("a history is lost and nothing more is recorded in it; see the disk, then restart the agent", "group", l.group, "err", errLost)
}

// bring brings the log to the disk and notes what is there then. safe is the position below which every byte of the log has been
// written to its ring by now.
func (l *log) bring(safe func() uint64, clean bool) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	d := l.disk
	if d == nil || d.err != nil || !d.dirty && !clean {
		l.mu.Unlock()
		return nil
	}
	d.dirty = false
	s := l.state()
	held := spans{all: s.held}
	held.remove(safe(), MaxPos)
	s.held = held.live()
	s.ahead = max(s.head, l.want) + slack(l.ring.size)
	before := d.ahead
	d.ahead = min(d.ahead, s.ahead) // what is recorded meanwhile is no exception
	l.mu.Unlock()
	err := d.ring.sync()
	if err == nil {
		err = d.note(s, clean)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		d.ahead = s.ahead
		return nil
	}
	d.ahead = before
	return l.unsynced(err)
}

// unsynced has a log whose notes cannot be written go on without: it survives the end of the process only.
func (l *log) unsynced(err error) error {
	if forget := forgetNote(l.disk.dir); forget != nil {
		l.disk.dirty = true // recording stops where the last note ends, until one can be written
		return errors.Join(err, forget)
	}
	l.disk.ahead, l.disk.noted = MaxPos, false
	return fmt.Errorf("%w: the history of group %s would not survive the end of the machine", err, l.group)
}

// destroy forgets the log, and its files. Nobody uses it any more.
func (l *log) destroy() {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
	if l.disk != nil {
		removeLog(l.disk.dir)
	}
}

// close lets go of the memory; the lock is held.
func (l *log) close() {
	if l.closed {
		return
	}
	l.closed = true
	if l.ring.cache != nil {
		l.ring.cache.remove(l.ring)
	}
	l.ring.close()
	if l.disk != nil {
		if l.table != nil {
			l.table.close()
		}
		l.disk.close()
	}
}

// shut closes the log.
func (l *log) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
}

func (l *log) name() string { return l.group }

func (l *log) problem() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.broken != nil {
		return l.broken
	}
	if l.disk != nil {
		return l.disk.err
	}
	return nil
}
