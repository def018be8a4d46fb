// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"math/bits"
)

// MaxPos is the highest position there can be: far from where arithmetic on positions would overflow.
const MaxPos = 1 << 62

const (
	// The margin is how many bytes may be in flight before blocks go unrecorded.
	minMargin  = 2 << 20  // two of the largest blocks, so that even a small log records them
	fairMargin = 32 << 20 // for logs at least as large
	maxMargin  = 64 << 20
	minBound   = 64 << 10
	maxBound   = 32 << 30 // the index keeps 36 bits of a position
)

// sizes clamps a bound (bytes that references may reach back) and gives the size of the segments of the ring, and of the
// whole ring, which is bound + margin. Both ends compute the same from the same bound.
func sizes(bound int64) (b, segment, ring uint64) {
	b = uint64(min(max(bound, minBound), maxBound))
	margin := min(max(b/4, min(b, fairMargin), minMargin), maxMargin)
	segment = 64 << 10
	if b+margin >= 16<<20 {
		segment = 1 << 20
	}
	ring = (b + margin + segment - 1) / segment * segment
	return b, segment, ring
}

// A ring holds the bytes of the last size positions in segments that are allocated when first written.
type ring struct {
	segments [][]byte
	segment  uint64 // bytes in a segment, a power of two
	shift    uint
	size     uint64
	held     int64 // bytes allocated
}

func newRing(segment, size uint64) ring {
	return ring{segments: make([][]byte, size/segment), segment: segment, shift: uint(bits.TrailingZeros64(segment)), size: size}
}

// grow allocates the segments of [pos, pos+n).
func (r *ring) grow(pos uint64, n int) {
	for end := pos + uint64(n); pos < end; pos = pos/r.segment*r.segment + r.segment {
		i := pos % r.size >> r.shift
		if r.segments[i] == nil {
			r.segments[i] = make([]byte, r.segment)
			r.held += int64(r.segment)
		}
	}
}

// view returns the bytes from pos to the end of its segment.
func (r *ring) view(pos uint64) []byte {
	at := pos % r.size
	return r.segments[at>>r.shift][at&(r.segment-1):]
}

func (r *ring) write(pos uint64, data []byte) {
	for len(data) > 0 {
		n := copy(r.view(pos), data)
		data, pos = data[n:], pos+uint64(n)
	}
}

func (r *ring) read(pos uint64, dst []byte) {
	for len(dst) > 0 {
		n := copy(dst, r.view(pos))
		dst, pos = dst[n:], pos+uint64(n)
	}
}

// forward counts how many bytes from pos on equal those of data.
func (r *ring) forward(pos uint64, data []byte) int {
	n := 0
	for n < len(data) {
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
func (r *ring) backward(pos uint64, data []byte) int {
	n := 0
	for n < len(data) {
		p := pos - uint64(n) - 1
		at := p % r.size
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
