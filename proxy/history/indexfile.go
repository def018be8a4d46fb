// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// indexHeader is the bytes before the table in an index's file: magic, layout, bytes of the table, entries taken.
const indexHeader = 4096

const indexMagic = "TLINDEX\x01"

// An indexTable keeps the table of a log's index in a file, mapped. What is in the file is never trusted: a wrong entry costs a
// comparison. It is guarded by the log's lock.
type indexTable struct {
	path string
	pool *pool
	maps []mapping // the newest last
}

type mapping struct {
	file *os.File
	mem  []byte
}

// make implements tables.
func (t *indexTable) make(size int) []byte {
	f, err := os.OpenFile(t.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	overwriteInPlace(f)
	whole := int64(indexHeader + size)
	err = ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, whole) })
	if err == nil {
		_, err = f.WriteAt(header(size, 0), 0)
	}
	if err == nil {
		err = rename(t.path+".new", t.path)
	}
	if err != nil {
		f.Close()
		os.Remove(t.path + ".new")
		return nil
	}
	return t.adopt(f, whole)
}

func header(size, used int) []byte {
	b := make([]byte, indexHeader)
	copy(b, indexMagic)
	binary.LittleEndian.PutUint64(b[8:], indexLayout)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	binary.LittleEndian.PutUint64(b[24:], uint64(used))
	return b
}

func (t *indexTable) adopt(f *os.File, whole int64) []byte {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(whole), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil
	}
	_ = unix.Madvise(mem, unix.MADV_RANDOM) // entries have no neighbours worth reading
	t.pool.force(whole)
	t.maps = append(t.maps, mapping{f, mem})
	return mem[indexHeader:]
}

// drop implements tables.
func (t *indexTable) drop() {
	for len(t.maps) > 1 {
		t.release(t.maps[0])
		t.maps = t.maps[1:]
	}
}

func (t *indexTable) release(m mapping) {
	t.pool.give(int64(len(m.mem)))
	_ = unix.Munmap(m.mem)
	m.file.Close()
}

// open gives the table that is there, and how many of its entries are taken; nil if there is none of this layout.
func (t *indexTable) open() (table []byte, used int) {
	f, err := os.OpenFile(t.path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0
	}
	h := make([]byte, 32)
	info, err := f.Stat()
	if err == nil {
		_, err = f.ReadAt(h, 0)
	}
	if err != nil || !info.Mode().IsRegular() || !bytes.HasPrefix(h, []byte(indexMagic)) ||
		binary.LittleEndian.Uint64(h[8:]) != indexLayout || int64(binary.LittleEndian.Uint64(h[16:]))+indexHeader != info.Size() ||
		info.Size() <= indexHeader || info.Size() > maxRing {
		f.Close()
		return nil, 0
	}
	return t.adopt(f, info.Size()), int(min(binary.LittleEndian.Uint64(h[24:]), maxRing))
}

// save notes how full the table is.
func (t *indexTable) save(used int) {
	if n := len(t.maps); n > 0 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(used))
		_, _ = t.maps[n-1].file.WriteAt(b[:], 24) // it only says when the table grows
	}
}

// bytes returns the size of the files.
func (t *indexTable) bytes() (n int64) {
	for _, m := range t.maps {
		n += int64(len(m.mem))
	}
	return n
}

func (t *indexTable) close() {
	for _, m := range t.maps {
		t.release(m)
	}
	t.maps = nil
}

// openIndex gives an index whose table is kept in a log's directory: with what is there, if it is wanted and of use.
func openIndex(dir string, ring uint64, p *pool, keep bool) (index, *indexTable) {
	t := &indexTable{path: filepath.Join(dir, indexFile), pool: p}
	if keep {
		if table, used := t.open(); table != nil {
			x := newIndex(ring, nil)
			x.tables = t
			if x.adopt(table, used) {
				return x, t
			}
			t.close()
		}
	}
	return newIndex(ring, t), t
}
