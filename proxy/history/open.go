// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errUnwritable says that a block would lie beyond what the last note allows.
var errUnwritable = errors.New("the disk has to catch up")

// init makes the log, or goes on with what is kept of it. It always makes one: if files cannot be had, it records nothing and says
// why.
func (l *log) init(s *Store, p place, bound int64, d direction) {
	b, segment, size := sizes(bound)
	l.direction, l.group, l.own, l.store = d, p.name, b, s
	l.held.max = spansFor(size)
	switch {
	case s == nil:
		l.ring = newRing(segment, size, heapSource(segment), &pool{})
	case s.cache == nil:
		l.ring = newRing(segment, size, anonSource(segment), s.pool)
	default:
		if err := l.openDir(p.dir, segment, size); err != nil {
			l.ring, l.disk = newRing(segment, size, heapSource(segment), s.pool), nil
			l.broken = err
			s.warn("nothing is recorded in a history", "group", l.group, "err", err)
		}
	}
}

// openDir goes on with the log in a directory, or begins one there.
func (l *log) openDir(dir string, segment, size uint64) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	have, note, err := load(dir, l.store.boot)
	if err == nil && (have.direction != l.direction || have.group != l.group) {
		err = errDamaged
	}
	switch {
	case err == nil && have.bound != l.own:
		l.store.opt.Log.Info("a history begins anew: its size in the configuration has changed", "group", l.group)
	case err == nil:
		err := l.resume(dir, have, note, segment, size)
		if !errors.Is(err, errDamaged) {
			return err
		}
		l.store.warn("a history was damaged and begins anew", "group", l.group, "directory", dir, "err", err)
	case !errors.Is(err, os.ErrNotExist):
		l.store.warn("a history was damaged and begins anew", "group", l.group, "directory", dir, "err", err)
	}
	return l.fresh(dir, segment, size)
}

func (l *log) fresh(dir string, segment, size uint64) error {
	removeLog(dir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	from, err := openRing(filepath.Join(dir, ringFile), segment, size, true)
	if err != nil {
		return err
	}
	l.take(dir, from, segment, size)
	return nil
}

func (l *log) take(dir string, from *fileSource, segment, size uint64) {
	l.ring = newRing(segment, size, from, l.store.pool)
	l.ring.cache = l.store.cache
	l.store.cache.add(l.ring)
	l.disk = &disk{dir: dir, boot: l.store.boot, pool: l.store.pool, ring: from, ahead: MaxPos}
}

// resume goes on with a log. note is what the file says that counts when the machine ends.
func (l *log) resume(dir string, have state, note *state, segment, size uint64) error {
	from, err := openRing(filepath.Join(dir, ringFile), segment, size, false)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) {
		return errors.Join(errDamaged, err)
	}
	if err != nil {
		return err
	}
	l.take(dir, from, segment, size)
	l.generation, l.base, l.head = have.generation, have.base, have.head
	l.held = spans{all: have.held, max: spansFor(size)}
	l.claim(from, have.boot != l.store.boot || have.boot == bootID{})
	l.disk.dirty = true
	if note == nil {
		return nil
	}
	l.disk.noted = true
	if !note.clean {
		l.disk.ahead = max(note.ahead, l.head)
		return nil
	}
	// Nothing has been written since; from now on something may be.
	s := l.state()
	s.ahead = s.head + slack(size)
	if err := l.disk.note(s, false); err != nil {
		return l.unsynced(err)
	}
	l.disk.ahead = s.ahead
	return nil
}

// claim counts the segments in that hold something, and has the file hold no others. rebooted: the file may lack what the state says,
// where that was given back just before the machine ended.
func (l *log) claim(from *fileSource, rebooted bool) {
	for i := range l.ring.segments {
		lo, hi := l.ring.positions(i, l.head)
		used := l.holds(lo, hi) || lo >= l.ring.size && l.holds(lo-l.ring.size, hi-l.ring.size)
		if used && rebooted && from.isHole(i) {
			l.forget(lo, hi)
			used = false
		}
		if !used {
			from.put(i, from.have(i))
			continue
		}
		seg, err := from.get(i) // what is allocated already stays as it is
		if err != nil {
			l.forget(lo, hi)
			continue
		}
		l.ring.pool.force(int64(l.ring.segment))
		l.ring.adopt(i, seg)
	}
}

// holds tells whether anything in a range is held.
func (l *log) holds(lo, hi uint64) bool {
	all := l.held.live()
	i := l.held.search(lo)
	return i < len(all) && all[i].lo < hi
}

// forget takes a segment's positions of both laps out of what is held.
func (l *log) forget(lo, hi uint64) {
	l.held.remove(lo, hi)
	if lo >= l.ring.size {
		l.held.remove(lo-l.ring.size, hi-l.ring.size)
	}
}

// isHole tells whether the file has nothing at all in a segment.
func (s *fileSource) isHole(i int) bool {
	at := int64(i) * s.segment
	next, err := unix.Seek(int(s.file.Fd()), at, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO) || err == nil && next >= at+s.segment
}

// start has the log written down as it is now: from here on its changes follow.
func (l *log) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.persist()
}

// renote replaces the note before bytes of another generation come, from pos on; the lock is held.
func (l *log) renote(pos uint64) {
	if !l.disk.noted || l.disk.err != nil {
		return
	}
	s := l.state()
	s.ahead = pos + slack(l.ring.size)
	if err := l.disk.note(s, false); err != nil {
		if err := l.unsynced(err); l.disk.ahead < MaxPos {
			l.disk.abandon(fmt.Errorf("a new generation: %w", err))
		}
		return
	}
	l.disk.ahead = s.ahead
}
