// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"runtime/debug"
	"sync/atomic"
)

// errNoRoom says that the bound of all histories is reached and nothing can be given back.
var errNoRoom = errors.New("all that histories may take is in use")

// MaxPos is the highest position there can be: far from where arithmetic on positions would overflow.
const MaxPos = 1 << 62

const (
	// The margin is how many bytes may be in flight before blocks go unrecorded.
	minMargin  = 2 << 20  // two of the largest blocks, so that even a small log records them
	fairMargin = 32 << 20 // for logs at least as large
	maxMargin  = 64 << 20
	minBound   = 64 << 10
	maxBound   = 32 << 30 // the index keeps 36 bits of a position
	maxRing    = maxBound + maxMargin
)

// sizes clamps a bound (bytes that references may reach back) and gives the size of the segments of the ring, and of the
// whole ring, which is bound + margin. Both ends compute the same from the same bound.
func sizes(bound int64) (b, segment, ring uint64) {
	b = uint64(min(max(bound, minBound), maxBound))
	margin := margin(b)
	segment = 64 << 10
	if b+margin >= 16<<20 {
		segment = 1 << 20
	}
	ring = (b + margin + segment - 1) / segment * segment
	return b, segment, ring
}

// margin is how many bytes may be in flight beside a bound.
func margin(bound uint64) uint64 {
	return min(max(bound/4, min(bound, fairMargin), minMargin), maxMargin)
}

// boundOf returns the largest bound whose ring takes at most so many bytes; at least the smallest that there is.
func boundOf(ring int64) int64 {
	low, high := int64(minBound), int64(maxBound)
	for low < high {
		mid := (low + high + 1) / 2
		if _, _, size := sizes(mid); size <= uint64(max(ring, 0)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// A ring holds the bytes of the last size positions in segments that are allocated when first written. Its bytes may be read
// while others are written; all else is guarded by the log's lock.
type ring struct {
	segments [][]byte
	used     []atomic.Uint64 // the pool's clock when a segment was used last, times two, and 1 if it is in memory
	segment  uint64          // bytes in a segment, a power of two
	shift    uint
	size     uint64
	held     atomic.Int64 // bytes allocated
	resident atomic.Int64 // of them, in memory, where there is a cache
	from     source
	pool     *pool       // of what is allocated
	cache    *cache      // of what of it is in memory, where it is a file's; else nil
	lost     atomic.Bool // an access failed: the disk gave an error, or somebody cut the file off
}

func newRing(segment, size uint64, from source, p *pool) *ring {
	n := size / segment
	return &ring{segments: make([][]byte, n), used: make([]atomic.Uint64, n), segment: segment,
		shift: uint(bits.TrailingZeros64(segment)), size: size, from: from, pool: p}
}

// lacks returns how many bytes grow would allocate for n bytes at pos.
func (r *ring) lacks(pos uint64, n int) (bytes int64) {
	if r.held.Load() == int64(r.size) {
		return 0
	}
	for end := pos + uint64(n); pos < end; pos = pos/r.segment*r.segment + r.segment {
		if r.segments[pos%r.size>>r.shift] == nil {
			bytes += int64(r.segment)
		}
	}
	return bytes
}

// grow allocates the segments of [pos, pos+n).
func (r *ring) grow(pos uint64, n int) error {
	if r.held.Load() == int64(r.size) {
		return nil
	}
	for end := pos + uint64(n); pos < end; pos = pos/r.segment*r.segment + r.segment {
		i := int(pos % r.size >> r.shift)
		if r.segments[i] != nil {
			continue
		}
		if !r.pool.take(int64(r.segment)) {
			return errNoRoom
		}
		seg, err := r.from.get(i)
		if err != nil {
			r.pool.give(int64(r.segment))
			return err
		}
		r.adopt(i, seg)
	}
	return nil
}

// adopt takes a segment in that is allocated and counted.
func (r *ring) adopt(i int, seg []byte) {
	r.segments[i] = seg
	r.used[i].Store(r.pool.clock.Load() << 1)
	r.held.Add(int64(r.segment))
}

// free gives segment i back. Nobody reads it.
func (r *ring) free(i int) {
	if r.segments[i] == nil {
		return
	}
	r.from.put(i, r.segments[i])
	if r.used[i].Swap(0)&1 != 0 && r.cache != nil {
		r.cache.left(r)
	}
	r.segments[i] = nil
	r.held.Add(-int64(r.segment))
	r.pool.give(int64(r.segment))
}

func (r *ring) clear() {
	for i := range r.segments {
		r.free(i)
	}
}

// close gives back all memory. A file keeps what it holds.
func (r *ring) close() {
	for i := range r.used {
		if r.used[i].Swap(0)&1 != 0 && r.cache != nil {
			r.cache.left(r)
		}
	}
	r.pool.give(r.held.Swap(0))
	r.from.close(r.segments)
	clear(r.segments)
}

// oldest finds the segment used least lately of those that hold nothing in [low, head) or beyond, i < 0 if there is none.
func (r *ring) oldest(low, head uint64) (i int, stamp uint64) {
	i = -1
	for k, seg := range r.segments {
		if seg == nil {
			continue
		}
		if at := r.used[k].Load() >> 1; i < 0 || at < stamp {
			if _, hi := r.positions(k, head); hi <= low {
				i, stamp = k, at
			}
		}
	}
	return i, stamp
}

// positions returns the positions that segment i has when the log ends at head. Of the one that the head is in it gives those of the
// newest lap.
func (r *ring) positions(i int, head uint64) (lo, hi uint64) {
	at := uint64(i) << r.shift
	if head <= at {
		return at, at + r.segment // never written: above the head, so that it looks used
	}
	lo = (head-1-at)/r.size*r.size + at
	return lo, lo + r.segment
}

// touch notes the use of the segments of [pos, pos+n), and makes room in memory for them.
func (r *ring) touch(pos uint64, n int) {
	now := r.pool.clock.Load()<<1 | 1
	for end := pos + uint64(n); pos < end; pos = pos/r.segment*r.segment + r.segment {
		u := &r.used[pos%r.size>>r.shift]
		if u.Load() == now {
			continue
		}
		if u.Swap(now)&1 == 0 && r.cache != nil {
			// With a stamp of its own, so that it is not the one that makes room.
			u.Store(r.pool.tick()<<1 | 1)
			r.cache.came(r)
		}
	}
}

// view returns the bytes from pos to the end of its segment.
func (r *ring) view(pos uint64) []byte {
	at := pos % r.size
	return r.segments[at>>r.shift][at&(r.segment-1):]
}

// write returns false if the ring is lost.
func (r *ring) write(pos uint64, data []byte) bool {
	r.stamp(pos, len(data))
	if f, ok := r.from.(*fileSource); ok {
		return r.writeFile(f, pos, data)
	}
	for len(data) > 0 {
		n := copy(r.view(pos), data)
		data, pos = data[n:], pos+uint64(n)
	}
	return true
}

// writeFile writes by system calls: what is mapped has the bytes at once, and it costs a tenth of what the faults of as many pages do.
func (r *ring) writeFile(f *fileSource, pos uint64, data []byte) bool {
	for len(data) > 0 {
		at := pos % r.size
		n := min(uint64(len(data)), r.size-at)
		if _, err := f.file.WriteAt(data[:n], int64(at)); err != nil {
			r.lost.Store(true)
			return false
		}
		data, pos = data[n:], pos+n
	}
	return true
}

// stamp notes the use of the segments of [pos, pos+n).
func (r *ring) stamp(pos uint64, n int) {
	now := r.pool.clock.Load() << 1
	for end := pos + uint64(n); pos < end; pos = pos/r.segment*r.segment + r.segment {
		u := &r.used[pos%r.size>>r.shift]
		if old := u.Load(); old|1 != now|1 {
			u.CompareAndSwap(old, now|old&1) // else somebody else uses it now, or it has just left the memory
		}
	}
}

// read returns false if the ring is lost.
func (r *ring) read(pos uint64, dst []byte) (ok bool) {
	if r.cache != nil {
		before := debug.SetPanicOnFault(true)
		defer func() { ok = r.survived(before, recover()) && ok }()
	}
	r.touch(pos, len(dst))
	for len(dst) > 0 {
		n := copy(dst, r.view(pos))
		dst, pos = dst[n:], pos+uint64(n)
	}
	return true
}

// survived ends a stretch in which a mapped file was accessed. What a failing disk, or a file that was cut off, makes of that is a
// fault: then the result is false, and the ring lost.
func (r *ring) survived(before bool, panicked any) bool {
	debug.SetPanicOnFault(before)
	if panicked == nil {
		return true
	}
	if _, fault := panicked.(interface{ Addr() uintptr }); !fault {
		panic(panicked)
	}
	r.lost.Store(true)
	return false
}

// forward counts how many bytes from pos on equal those of data.
func (r *ring) forward(pos uint64, data []byte) (n int) {
	if r.cache != nil {
		before := debug.SetPanicOnFault(true)
		defer func() {
			if !r.survived(before, recover()) {
				n = 0
			}
		}()
	}
	for n < len(data) {
		r.touch(pos+uint64(n), 1)
		v := r.view(pos + uint64(n))
		v = v[:min(len(v), len(data)-n)]
		c := common(v, data[n:])
		n += c
		if c < len(v) {
			break
		}
	}
	return n
}

// backward counts how many bytes before pos equal those at the end of data.
func (r *ring) backward(pos uint64, data []byte) (n int) {
	if r.cache != nil {
		before := debug.SetPanicOnFault(true)
		defer func() {
			if !r.survived(before, recover()) {
				n = 0
			}
		}()
	}
	for n < len(data) {
		p := pos - uint64(n) - 1
		at := p % r.size
		r.touch(p, 1)
		seg, off := r.segments[at>>r.shift], int(at&(r.segment-1))
		for off >= 0 && n < len(data) {
			if seg[off] != data[len(data)-1-n] {
				return n
			}
			off--
			n++
		}
	}
	return n
}

// common returns the length of the common beginning of a and b; b is at least as long as a.
func common(a, b []byte) int {
	const page = 4 << 10
	n := 0
	// Whole pages first, by the run-time's vectorised comparison, then words, then bytes.
	for len(a)-n >= page && string(a[n:n+page]) == string(b[n:n+page]) {
		n += page
	}
	for len(a)-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}
