// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A source gives a ring the memory of its segments. One call at a time.
type source interface {
	// get returns segment i, zeroed or with what it held when the log was closed.
	get(i int) ([]byte, error)
	// put gives it back, and what it holds is gone. Nobody reads it any more.
	put(i int, segment []byte)
	// close gives back all that is left. Segments of files keep what they hold.
	close(segments [][]byte)
}

// heap takes segments from the run-time: for logs that go when nobody knows them any more.
type heapSource uint64

func (s heapSource) get(int) ([]byte, error) { return make([]byte, s), nil }
func (heapSource) put(int, []byte)           {}
func (heapSource) close([][]byte)            {}

// anonSource maps memory, so that what is given back is so at once, and the collector has nothing to do with it: it would let
// garbage grow in proportion.
type anonSource uint64

func (s anonSource) get(int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(s), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mapping memory: %w", err)
	}
	return b, nil
}

func (anonSource) put(_ int, segment []byte) { _ = unix.Munmap(segment) } // an error would be a bug, and costs memory only

func (s anonSource) close(segments [][]byte) {
	for _, seg := range segments {
		if seg != nil {
			_ = unix.Munmap(seg)
		}
	}
}

// fileSource is a file of the ring's size, mapped as a whole. Its blocks are allocated before they are written, so that a full
// disk is an error here and not a fault there, and given back by holes.
type fileSource struct {
	file    *os.File
	mem     []byte
	segment int64
}

// openRing maps a ring's file, which is made if it is not there. It must have the ring's size, if it is.
func openRing(path string, segment, size uint64, fresh bool) (*fileSource, error) {
	flags := os.O_RDWR
	if fresh {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	s := &fileSource{file: f, segment: int64(segment)}
	if err := s.open(size, fresh); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *fileSource) open(size uint64, fresh bool) error {
	if fresh {
		overwriteInPlace(s.file)
		if err := s.file.Truncate(int64(size)); err != nil {
			return err
		}
	}
	info, err := s.file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() != int64(size):
		return fmt.Errorf("%w: %d bytes instead of %d", errDamaged, info.Size(), size)
	}
	s.mem, err = unix.Mmap(int(s.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	return nil
}

// overwriteInPlace asks a file system that writes elsewhere (btrfs) not to: there an allocated block could still find no room. Others
// do not know the flag.
func overwriteInPlace(f *os.File) {
	const noCow = 0x00800000 // FS_NOCOW_FL
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|noCow)
	}
}

// have returns a segment that the file holds already.
func (s *fileSource) have(i int) []byte {
	at := int64(i) * s.segment
	return s.mem[at : at+s.segment : at+s.segment]
}

func (s *fileSource) get(i int) ([]byte, error) {
	err := ignoringEINTR(func() error { return unix.Fallocate(int(s.file.Fd()), 0, int64(i)*s.segment, s.segment) })
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes of %s: %w", s.segment, s.file.Name(), err)
	}
	return s.have(i), nil
}

func (s *fileSource) put(i int, segment []byte) {
	_ = unix.Madvise(segment, unix.MADV_DONTNEED)
	// The file system was asked at start whether it makes holes.
	_ = ignoringEINTR(func() error {
		return unix.Fallocate(int(s.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(i)*s.segment, s.segment)
	})
}

func (s *fileSource) close([][]byte) {
	_ = unix.Munmap(s.mem)
	_ = s.file.Close()
	s.mem = nil
}

// sync has the file's blocks on disk when it returns.
func (s *fileSource) sync() error {
	return ignoringEINTR(func() error { return unix.Fdatasync(int(s.file.Fd())) })
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// probe tells whether files in a directory can be a history's: blocks are allocated ahead, given back, and mapped.
func probe(dir string) error {
	const size = 64 << 10
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	for _, mode := range []uint32{0, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE} {
		err := ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), mode, 0, size) })
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("the file system of %s cannot allocate or give back parts of a file; put the history on ext4, xfs, btrfs or tmpfs", dir)
		}
		if err != nil && !errors.Is(err, unix.ENOSPC) { // a full disk may have room later
			return err
		}
	}
	return nil
}
