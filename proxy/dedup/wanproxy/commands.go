// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"encoding/binary"
)

// commands are those of one payload, as the searcher finds them. What they do to the cache they do at once, in the order in
// which the decoder will do the same.
type commands struct {
	e    *Encoder
	size int  // bytes of a segment
	over bool // overlapping segments are used

	buf    []byte // the block and what came before it
	base   int64  // position of buf[0] in the flow
	number uint64 // of the block

	declared []declared // in this block
	at       int        // bytes of buf that are sent
	least    int        // bytes for which OVER_REF is worth its own
	bytes    []byte
	flags    byte
	broken   int
	skip     int
	cut      int

	literals int // bytes of the block that are not in references
	gap      int // bytes since the last segment that were not in references; goes on from block to block
}

func (o *commands) begin(c *chunk, n int, number uint64) {
	o.buf, o.base, o.number = c.buf, c.base, number
	o.at = len(c.buf) - n
	o.declared = o.declared[:0]
	o.bytes, o.flags, o.broken, o.skip, o.cut, o.literals = o.bytes[:0], 0, 0, 0, 0, 0
	if n < shortBlock {
		o.flags = flagShort
	}
}

// plain sends the block as it is.
func (o *commands) plain(src []byte) {
	o.flags |= flagPlain
	o.bytes = append(o.bytes, src...)
	o.literals = len(src)
	o.at, o.gap = len(o.buf), 0
}

// literal sends bytes up to an index of buf.
func (o *commands) literal(to int) {
	if n := to - o.at; n > 0 {
		o.bytes = appendEscaped(o.bytes, o.buf[o.at:to])
		o.literals += n
		o.gap += n
		o.at = to
	}
}

// reach notes how many bytes of a segment that begins at an index were sent already, and returns them.
func (o *commands) reach(start int) int {
	skip := max(o.at-start, 0)
	if skip > 0 {
		o.flags |= flagSkip
		o.skip = skip
	}
	return skip
}

// extract declares the segment at an index. The cache is locked.
func (o *commands) extract(start int, h uint64) uint32 {
	o.literal(start)
	skip := o.reach(start)
	segment := o.buf[start : start+o.size]
	o.bytes = append(append(o.bytes, magic, opExtract), segment[skip:]...)
	o.literals += o.size - skip
	o.at, o.gap = start+o.size, 0
	return o.declare(h, segment)
}

// declare puts a segment into the cache; other flows may refer to it when the block is acknowledged.
func (o *commands) declare(h uint64, segment []byte) uint32 {
	c := o.e.cache
	slot := c.insert(h, segment, o.e.flow)
	o.declared = append(o.declared, declared{o.number, h, slot, c.epoch})
	return slot
}

// ref refers to a slot for the segment that begins at start, of which cut bytes belong to this block. The cache is locked.
func (o *commands) ref(start int, slot uint32, cut int) {
	c := o.e.cache
	h := c.entry(slot).hash
	c.touch(slot) // lest it makes room for another
	if overlap := o.close(start, slot); overlap != 0 && c.holds(slot, h) {
		c.entry(slot).before = overlap
	}
	o.reach(start)
	o.bytes = appendHash(append(o.bytes, magic, opRef), h)
	if cut < o.size {
		o.flags |= flagCut
		o.cut = cut
	}
	o.at, o.gap = start+cut, 0
	if c.holds(slot, h) {
		c.touch(slot)
	}
}

// close sends the bytes between the last segment and a reference to slot at start. It returns a slot whose segment ends there.
func (o *commands) close(start int, slot uint32) uint32 {
	n := start - o.at
	if n <= 0 || !o.over {
		o.literal(start)
		return o.overlap(start, max(-n, 0))
	}
	if n >= o.least {
		if o.overRef(start, o.e.cache.entry(slot).before) {
			return o.overlap(start, 0)
		}
		if ending := o.ending(start); o.overRef(start, ending) {
			return ending
		}
	}
	if n >= minOverlap && n < o.size && start >= o.size && bytes.Count(o.buf[o.at:start], []byte{magic}) > extRefBytes {
		return o.extRef(start)
	}
	o.literal(start)
	return o.overlap(start, 0)
}

// ending finds the segment whose last byte lies before an index of buf.
func (o *commands) ending(end int) uint32 {
	if end < o.size {
		return 0
	}
	segment := o.buf[end-o.size : end]
	h := sum(segment)
	if !o.e.cache.maybe(h) {
		return 0
	}
	return o.e.cache.lookup(h)
}

// overRef sends bytes up to an index by what they have in common with the end of a slot's segment, if that is worth it.
func (o *commands) overRef(end int, slot uint32) bool {
	c := o.e.cache
	if slot == 0 || !c.visible(slot, o.e.flow) {
		return false
	}
	n := common(o.buf[o.at:end], c.segment(slot))
	if n < o.least {
		return false
	}
	o.literal(end - n)
	o.bytes = binary.BigEndian.AppendUint16(append(o.bytes, magic, opOverRef), uint16(n))
	o.bytes = appendHash(o.bytes, c.entry(slot).hash)
	o.at = end
	c.touch(slot)
	return true
}

// common returns how many bytes at the ends of a and b are the same.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	i := n
	for i >= 8 && binary.LittleEndian.Uint64(a[i-8:]) == binary.LittleEndian.Uint64(b[i-8:]) {
		i -= 8
	}
	for i > 0 && a[i-1] == b[i-1] {
		i--
	}
	return n - i
}

// extRef sends bytes up to an index, without escapes, and keeps the segment that they end.
func (o *commands) extRef(end int) uint32 {
	slot, h := o.keep(end)
	o.carried(opExtRef, end)
	o.bytes = appendHash(o.bytes, h)
	return slot
}

// overExt is extRef for the end of a block.
func (o *commands) overExt(end int) uint32 {
	slot, _ := o.keep(end)
	o.carried(opOverExt, end)
	return slot
}

func (o *commands) carried(op byte, end int) {
	n := end - o.at
	o.bytes = binary.BigEndian.AppendUint16(append(o.bytes, magic, op), uint16(n))
	o.bytes = append(o.bytes, o.buf[o.at:end]...)
	o.literals += n
	o.at, o.gap = end, 0
}

// overlap keeps the segment that ends where a reference begins, if the bytes before that, besides those of which skip were
// sent too many, were not in references. The decoder does the same without being told.
func (o *commands) overlap(end, skip int) uint32 {
	if !overlaps(o.over, o.gap-skip, o.base+int64(end), o.size) {
		return 0
	}
	slot, _ := o.keep(end)
	return slot
}

// overlaps tells whether both ends keep the segment that ends at a position of the flow, behind gap bytes.
func overlaps(over bool, gap int, end int64, size int) bool {
	return over && gap >= minOverlap && end >= int64(size)
}

// keep declares the segment that ends at an index.
func (o *commands) keep(end int) (uint32, uint64) {
	segment := o.buf[end-o.size : end]
	h := sum(segment)
	slot := o.declare(h, segment)
	if last := o.e.search.last; o.e.cache.holds(last, o.e.search.lastHash) && last != slot {
		o.e.cache.entry(last).over = slot
	}
	return slot, h
}
