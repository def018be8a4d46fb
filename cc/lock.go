// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultLockDir is where processes agree on registrations without links. It must be the same for all on a host.
const DefaultLockDir = "/run/trunkline"

// A registration without a link belongs to no process, so the processes keep count themselves: each user of a name holds a
// shared lock on one byte of a file, which goes with the process however it ends, and whoever changes anything holds
// another byte alone meanwhile. Locks of open file descriptions can be converted without a gap.
const (
	guardByte = 0
	usersByte = 1
)

// lockFile is an open lock file, with the guard held until release or drop.
type lockFile struct {
	f    *os.File
	path string
}

func lockPath(dir, name string) string { return filepath.Join(dir, name+".lock") }

// openLock opens or creates a lock file and takes the guard. Whoever held it before may have removed the file, so the one
// that is locked must be the one that has the name.
func openLock(path string) (*lockFile, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening the lock of a congestion control: %w", err)
		}
		l := &lockFile{f, path}
		if err := l.set(unix.F_OFD_SETLKW, unix.F_WRLCK, guardByte); err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		mine, err := f.Stat()
		named, err2 := os.Stat(path)
		if err == nil && err2 == nil && os.SameFile(mine, named) {
			return l, nil
		}
		f.Close()
		if err2 != nil && !errors.Is(err2, os.ErrNotExist) {
			return nil, fmt.Errorf("locking %s: %w", path, err2)
		}
	}
}

func (l *lockFile) set(cmd int, kind int16, at int64) error {
	return unix.FcntlFlock(l.f.Fd(), cmd, &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1})
}

// use counts this process among the users. It needs the guard.
func (l *lockFile) use() error {
	if err := l.set(unix.F_OFD_SETLK, unix.F_RDLCK, usersByte); err != nil {
		return fmt.Errorf("locking %s: %w", l.path, err)
	}
	return nil
}

// alone says whether no other process uses the name, and counts this one no more. It needs the guard.
func (l *lockFile) alone() (bool, error) {
	err := l.set(unix.F_OFD_SETLK, unix.F_WRLCK, usersByte)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, l.set(unix.F_OFD_SETLK, unix.F_UNLCK, usersByte)
	}
	if err != nil {
		return false, fmt.Errorf("locking %s: %w", l.path, err)
	}
	return true, nil
}

// guard takes the guard again.
func (l *lockFile) guard() error {
	if err := l.set(unix.F_OFD_SETLKW, unix.F_WRLCK, guardByte); err != nil {
		return fmt.Errorf("locking %s: %w", l.path, err)
	}
	return nil
}

// release lets others in; what use said stays.
func (l *lockFile) release() error {
	if err := l.set(unix.F_OFD_SETLK, unix.F_UNLCK, guardByte); err != nil {
		return fmt.Errorf("unlocking %s: %w", l.path, err)
	}
	return nil
}

// drop ends everything; remove takes the file away, too, which only its last user may ask for.
func (l *lockFile) drop(remove bool) error {
	var err error
	if remove {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.f.Close())
}
