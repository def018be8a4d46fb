// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The files of a log, in a directory of its own.
const (
	ringFile  = "ring"  // the bytes
	indexFile = "index" // of a sender
	liveFile  = "live"  // the state and its changes, as they come: good until the machine ends
	noteFile  = "note"  // the state as of the last time that all was written to the disk: good for ever
)

// minChanges is how many changes fit behind a state at least before it is written anew.
const minChanges = 8192

// A disk is a log's directory. It is guarded by the log's lock, but for note. A nil disk is a log in memory.
type disk struct {
	dir  string
	boot bootID
	pool *pool
	ring *fileSource

	live    *os.File
	check   uint64 // of the state that live begins with
	at      int64  // where the next change goes
	changes int
	most    int
	charged int64 // bytes of live and note, counted in the pool
	scratch []byte

	ahead uint64 // how far the log may go before the next note
	dirty bool   // something has changed since the last note
	noted bool   // there is a note
	err   error  // why the log is kept no longer
}

// replace replaces a file by one of these contents, followed by room for so many bytes more. Whenever the process ends there is the
// old file or the new one; durable: whenever the machine does, too.
func replace(path string, contents []byte, room int64, durable bool) (*os.File, error) {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if room > 0 {
		overwriteInPlace(f)
		size := int64(len(contents)) + room
		err = ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	}
	if err == nil {
		_, err = f.Write(contents)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if err == nil {
		err = rename(temp, path)
	}
	if err == nil && durable {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		os.Remove(temp)
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return f, nil
}

// rename puts a file in the place of whatever is there, be it a directory.
func rename(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if err = os.RemoveAll(to); err == nil {
			err = os.Rename(from, to)
		}
	}
	return err
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// rewrite begins the live file anew with a state.
func (d *disk) rewrite(s state) error {
	s.boot, s.clean, s.ahead = d.boot, false, d.ahead
	b := s.append(d.scratch[:0])
	d.scratch = b[:0]
	most := max(minChanges, len(s.held))
	f, err := replace(filepath.Join(d.dir, liveFile), b, int64(most)*changeSize, false)
	if err != nil {
		return err
	}
	if d.live != nil {
		d.live.Close()
	}
	d.live, d.at, d.changes, d.most = f, int64(len(b)), 0, most
	_, _, d.check, err = parseState(b)
	d.charge(2*int64(len(b)) + int64(most)*changeSize)
	return err
}

// charge counts the bytes of the small files.
func (d *disk) charge(n int64) {
	d.pool.force(n - d.charged)
	d.charged = n
}

// enter writes a change down. It returns false if the file is full or fails: then the state has to be written anew.
func (d *disk) enter(c change) bool {
	if d.err != nil {
		return true
	}
	d.dirty = true
	if d.changes >= d.most {
		return false
	}
	b := c.append(d.scratch[:0], d.check, d.changes)
	d.scratch = b[:0]
	if _, err := d.live.WriteAt(b, d.at); err != nil {
		return false
	}
	d.at += changeSize
	d.changes++
	return true
}

// abandon gives up keeping the log: what is on disk of it must not be taken for it later.
func (d *disk) abandon(why error) {
	if d.err != nil {
		return
	}
	d.err = why
	for _, name := range []string{liveFile, noteFile} {
		if err := os.Remove(filepath.Join(d.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.err = errors.Join(d.err, err)
		}
	}
}

// note writes a state down for the time after the machine has ended. The log's bytes up to it are on disk.
func (d *disk) note(s state, clean bool) error {
	s.boot, s.clean = d.boot, clean
	f, err := replace(filepath.Join(d.dir, noteFile), s.append(nil), 0, true)
	if err != nil {
		return err
	}
	d.noted = true
	return f.Close()
}

// close gives back what is open. What is on disk stays.
func (d *disk) close() {
	if d.live != nil {
		d.live.Close()
		d.live = nil
	}
	d.charge(0)
}

// load reads what is known of a log: by the file of the process before, if it was of this run of the kernel, else by the note, which it
// gives besides if there is one.
func load(dir string, boot bootID) (s state, note *state, err error) {
	live, liveErr := loadFile(filepath.Join(dir, liveFile), true)
	s, err = loadFile(filepath.Join(dir, noteFile), false)
	if err == nil {
		written := s
		note = &written
	}
	if liveErr == nil && live.boot == boot && boot != (bootID{}) {
		if note != nil && note.bound != live.bound {
			note = nil
		}
		return live, note, nil
	}
	if err != nil {
		if liveErr != nil && !errors.Is(liveErr, os.ErrNotExist) {
			err = liveErr
		}
		return state{}, nil, err
	}
	s.survive()
	return s, note, nil
}

// maxStateBytes bounds what is read of a file that should be a state.
var maxStateBytes = int64(stateFixed + maxName + 8 + 2*16*spansFor(maxRing))

func loadFile(path string, changes bool) (state, error) {
	b, err := readFile(path, 3*maxStateBytes)
	if err != nil {
		return state{}, err
	}
	s, rest, check, err := parseState(b)
	if err != nil {
		return state{}, fmt.Errorf("%s: %w", path, err)
	}
	if changes {
		s.replay(rest, check)
	}
	return s, nil
}

// readFile reads a regular file of at most so many bytes.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%s is a link: %w", path, errDamaged)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: %w", path, errDamaged)
	}
	return io.ReadAll(io.LimitReader(f, most))
}
