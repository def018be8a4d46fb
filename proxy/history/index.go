// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math/bits"
	"unsafe"
)

// indexLayout numbers how a table is laid out, since it may be kept on disk: it changes with every constant below, with tag and
// with the anchors. A table of another layout is of no use.
const indexLayout = 2

const (
	ways     = 8  // entries in a bucket, a cache line
	posBits  = 36 // of a position; the rest follows from the head, as the ring is smaller than 1 << 36
	tagBits  = 64 - posBits
	posMask  = 1<<posBits - 1
	share    = 26  // of a bound, the index takes at most one part in share: 3.85 %
	firstMin = 512 // buckets to begin with, at least, where there will be more than twice as many
)

// BytesPerEntry is for how many bytes of a log's bound its index has an entry: anchors should be about as far apart.
const BytesPerEntry = 8 * share

// A Sample is an anchor: the content hash of the bytes that end at offset At (bytes) of a block.
type Sample struct {
	Hash uint64
	At   int
}

// Candidates are positions (0: none) where the bytes may be the same as those before an anchor.
type Candidates [4]uint64

// An index finds positions by the hash of the bytes there. An entry is 28 bits of hash, the tag, and 36 bits of position. The tags
// are spread over the buckets in their order, so that the table can double as the log fills without knowing more of the
// hashes: an idle group costs 64 KiB at most. A position that is no longer valid is recognised by the caller; a wrong one costs a
// comparison, so that nothing goes wrong with a table that was kept on disk and is older than the log, or damaged.
type index struct {
	tables  tables   // where entries come from; nil: the heap
	entries []uint64 // buckets of ways; 0 is empty
	mask    uint64   // buckets - 1
	used    int      // entries taken
	most    int      // buckets at most: first << n
	touched uint64   // what touch has read: of no use, but else it would not be read
}

// tables gives memory for an index.
type tables interface {
	// make gives a zeroed table of a number of bytes, or nil if there is no room. The one given before stays until drop.
	make(bytes int) []byte
	// drop gives back all tables but the one given last.
	drop()
}

// newIndex makes an empty index for a ring of a size in bytes, whose table comes from t, if that is not nil.
func newIndex(ring uint64, t tables) index {
	first, most := indexSizes(ring)
	x := index{tables: t, most: most}
	if x.entries = x.make(first * ways); x.entries == nil {
		x.tables = nil
		x.entries = x.make(first * ways)
	}
	x.mask = uint64(first - 1)
	return x
}

// indexSizes gives the buckets that the index of a ring begins with, and how many it has at most: first << n. Where a bucket is full
// the oldest entry goes, and its neighbours lead to the same bytes.
func indexSizes(ring uint64) (first, most int) {
	// The margin is no history: at least so much of the ring is.
	margin := min(max(ring/5, min(ring/2, fairMargin), minMargin), maxMargin)
	bound := max(ring-min(ring, margin+64<<10), minBound)
	most = max(int(bound/share/(8*ways)), 1)
	first = most
	double := 0
	for first >= 2*firstMin {
		first /= 2
		double++
	}
	return first, first << double
}

// make gives room for entries, nil if there is none.
func (x *index) make(entries int) []uint64 {
	if x.tables == nil {
		return make([]uint64, entries)
	}
	return entriesOf(x.tables.make(8 * entries))
}

func entriesOf(table []byte) []uint64 {
	if len(table) < 8*ways {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&table[0])), len(table)/8)
}

// adopt goes on with a table that was kept, and tells whether that can be. used is how many of its entries are taken, more or
// less.
func (x *index) adopt(table []byte, used int) bool {
	n := len(table) / 8 / ways
	if n == 0 || len(table)%(8*ways) != 0 || n > x.most || x.most%n != 0 || bits.OnesCount(uint(x.most/n)) != 1 || used < 0 {
		return false
	}
	x.entries, x.mask, x.used = entriesOf(table), uint64(n-1), min(used, n*ways)
	return true
}

// tag takes the bits of a hash that an entry keeps.
func tag(hash uint64) uint64 { return hash * 0x9e3779b97f4a7c15 >> posBits }

func (x *index) bucket(t uint64) []uint64 {
	i := t * (x.mask + 1) >> tagBits * ways
	return x.entries[i : i+ways : i+ways]
}

// lookup returns the positions of a hash that lie in [low, head).
func (x *index) lookup(hash, low, head uint64) (c Candidates) {
	t, n := tag(hash), 0
	for _, e := range x.bucket(t) {
		if e>>posBits != t || e == 0 {
			continue
		}
		if p := position(e, head); p >= low && p < head && n < len(c) {
			c[n] = p
			n++
		}
	}
	return c
}

// position completes the low bits of a position to the highest one that is not above head.
func position(e, head uint64) uint64 { return head - (head-e)&posMask }

// touch brings the buckets of some anchors into the processor's cache. No load waits for another, so that the misses overlap.
func (x *index) touch(samples []Sample) {
	for _, s := range samples {
		x.touched += x.bucket(tag(s.Hash))[0]
	}
}

// insert enters a position. Of one content it keeps two places at most: the newest may not be referable yet, and copies of
// one content must not drive out all others. Else the oldest entry goes.
func (x *index) insert(hash, pos, head uint64) {
	t := tag(hash)
	b := x.bucket(t)
	oldest, twin, twins := 0, 0, 0
	most, twinAge := uint64(0), uint64(0)
	for i, e := range b {
		if e == 0 {
			oldest = i
			if twins < 2 {
				x.used++
			}
			break
		}
		age := (head - e) & posMask
		if e>>posBits == t {
			if twins++; twins == 1 || age > twinAge {
				twin, twinAge = i, age
			}
		}
		if age > most {
			oldest, most = i, age
		}
	}
	if twins >= 2 {
		oldest = twin
	}
	b[oldest] = t<<posBits | pos&posMask
	if x.used > len(x.entries)/2 && int(x.mask)+1 < x.most {
		x.double()
	}
}

// double splits every bucket in two by one more bit of the hash.
func (x *index) double() {
	old := x.entries
	n := len(old) / ways
	if x.entries = x.make(2 * len(old)); x.entries == nil {
		x.entries, x.most = old, n // no room: the oldest entries go
		return
	}
	if x.tables != nil {
		defer x.tables.drop()
	}
	x.mask = uint64(2*n - 1)
	for i := 0; i < len(old); i += ways {
		lo, hi := 2*i, 2*i+ways
		for _, e := range old[i : i+ways] {
			switch {
			case e == 0:
			case e>>posBits*uint64(2*n)>>tagBits&1 == 0:
				x.entries[lo] = e
				lo++
			default:
				x.entries[hi] = e
				hi++
			}
		}
	}
}

func (x *index) bytes() int64 { return int64(len(x.entries)) * 8 }
