// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"sync/atomic"
)

// A searcher looks for segments in a flow as WANProxy's encoder does: at each byte; what is found first is referred to; where a
// whole segment's bytes pass without a find, they are declared, and the next segment begins behind them.
//
// Unlike WANProxy's it goes on over the ends of blocks. Bytes are sent with their block, whatever becomes of them:
//   - a segment that is complete only with a later block is declared or referred to then, by a command that says how many of
//     its bytes were sent before;
//   - where the bytes at a block's end are how the segment begins that followed last time, that one is referred to at
//     once, and only as many of its bytes are taken as are in the block. The rest, the carry, goes with the next block; if
//     that goes on otherwise, it says after how many bytes.
//
// Positions are in the flow, but for those named at, which are indices of commands.buf.
type searcher struct {
	e    *Encoder
	size int
	gone uint64 // by which a byte that leaves a segment counts in its hash

	begin    int64  // of the segment that is to be declared next: everything before it is in segments or was passed over
	next     int64  // the next position to look at; before begin where a block ended before the search was done
	hash     uint64 // of the segment at next-1
	hashed   bool
	declares uint64 // hash of the segment at begin
	last     uint32 // slot that ends at begin; 0: none
	lastHash uint64
	early    early
	guessed  bool // how the segment at begin may go on has been looked up in vain
	carry    carry
}

// early is the segment that was declared last, if that was because its block ended: then a segment that begins within it may still be
// found, as it would have been before if the block had gone on.
type early struct {
	slot     uint32 // 0: none, or it was known before
	hash     uint64
	last     uint32 // what came before it
	lastHash uint64
}

// A carry is a segment that was referred to before all of it was there.
type carry struct {
	live    bool
	begin   int64
	from    int64 // where the search was, before begin
	slot    uint32
	hash    uint64
	segment []byte
	used    int // bytes
}

// skip passes over a block.
func (s *searcher) skip() {
	o := &s.e.out
	if s.carry.live {
		s.carry.live = false
		o.flags |= flagBreak
		o.broken = 0
	}
	s.restart(o.base + int64(len(o.buf)))
}

// restart begins anew at a position.
func (s *searcher) restart(pos int64) {
	s.begin, s.next, s.hashed, s.last, s.guessed, s.early.slot = pos, pos, false, 0, false, 0
}

// run looks for segments in the block that o has begun, and sends it.
func (s *searcher) run() {
	o := &s.e.out
	if s.carry.live && !s.carryOn() {
		return
	}
	end := o.base + int64(len(o.buf))
	size := int64(s.size)
	for {
		if s.next == s.begin && s.last != 0 && s.follow(end) {
			continue
		}
		if slot := s.scan(min(end-size, s.begin+size-1)); slot != 0 {
			s.refer(slot)
			s.e.cache.mu.Unlock()
			continue
		}
		if s.begin+size > end {
			break
		}
		s.declare()
		if s.next > end-size {
			break
		}
	}
	s.finish(end)
}

// follow goes where the flow went last time behind the last segment; false if it does not go there.
func (s *searcher) follow(end int64) bool {
	if s.straight(end) {
		return true
	}
	// Behind a gap another segment may have come to be known. Only the first position is looked at.
	if slot := s.scan(min(s.begin, end-int64(s.size))); slot != 0 {
		s.refer(slot)
		s.e.cache.mu.Unlock()
		return true
	}
	return s.jump(end)
}

// straight refers to segments for as long as they come one after the other as last time, which needs no hashes.
func (s *searcher) straight(end int64) (found bool) {
	o, c := &s.e.out, s.e.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.next+int64(s.size) <= end {
		slot, gap := s.after()
		at := int(s.next - o.base)
		if slot == 0 || gap > 0 || !bytes.Equal(c.segment(slot), o.buf[at:at+s.size]) {
			break
		}
		s.refer(slot)
		found = true
	}
	return found
}

// jump refers to the segment that came behind a gap last time.
func (s *searcher) jump(end int64) bool {
	o, c := &s.e.out, s.e.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	slot, gap := s.after()
	at := int(s.begin-o.base) + gap
	if slot == 0 || gap == 0 || at+s.size > len(o.buf) || !bytes.Equal(c.segment(slot), o.buf[at:at+s.size]) {
		return false
	}
	s.next = s.begin + int64(gap)
	s.refer(slot)
	return true
}

// carryOn takes the bytes that the carry stands for; false if that is all of the block.
func (s *searcher) carryOn() bool {
	o, c := &s.e.out, &s.carry
	src, rest := o.buf[o.at:], c.segment[c.used:]
	n := forward(src, rest)
	o.at += n
	c.used += n
	switch {
	case n == len(src) && n < len(rest):
		o.flags |= flagCut
		o.cut = c.used
		return false
	case n == len(rest):
		s.restart(c.begin + int64(s.size))
		s.last, s.lastHash = c.slot, c.hash
		c.live = false
		return n < len(src)
	}
	// Now it is as if the segment had not been referred to, if what came before it is not too far back.
	o.flags |= flagBreak
	o.broken = n
	from := c.from
	if o.base+int64(o.at+worthwhile-s.size) > from {
		from = c.begin
	}
	s.restart(from)
	s.guessed = true
	c.live = false
	return true
}

// forward returns how many bytes at the starts of a and b are the same.
func forward(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// after returns the slot that came after the last one last time, and the bytes between them. The cache is locked.
func (s *searcher) after() (slot uint32, gap int) {
	c := s.e.cache
	if s.last == 0 || !c.holds(s.last, s.lastHash) {
		return 0, 0
	}
	e := c.entry(s.last)
	if e.after == 0 || !c.visible(e.after, s.e.flow) {
		return 0, 0
	}
	return e.after, int(e.gap)
}

// refer refers to a slot for the segment at next. Where all but a few bytes of it were sent before, that is not said, but
// the search still goes on behind it. The cache is locked.
func (s *searcher) refer(slot uint32) {
	o, c := &s.e.out, s.e.cache
	at := int(s.next - o.base)
	h := c.entry(slot).hash
	if s.next < s.begin {
		s.takeBack(slot)
	}
	s.follows(slot, s.next-s.begin)
	if at+s.size-o.at >= worthwhile {
		o.ref(at, slot, s.size)
	}
	s.restart(s.next + int64(s.size))
	s.last, s.lastHash = slot, h
}

// takeBack gives up the segment that was declared early, for one that overlaps it: kept, it would be found the next time, and the other
// would not. The decoder keeps it for nothing.
func (s *searcher) takeBack(slot uint32) {
	c := s.e.cache
	if y := s.early; y.slot != 0 && y.slot != slot && c.holds(y.slot, y.hash) && c.entry(y.slot).owner != everyone {
		c.drop(y.slot)
		s.begin -= int64(s.size)
		s.last, s.lastHash = y.last, y.lastHash
	}
}

// follows notes that a slot came gap bytes after the last one.
func (s *searcher) follows(slot uint32, gap int64) {
	c := s.e.cache
	if s.last == 0 || gap < 0 || gap >= int64(s.size) || !c.holds(s.last, s.lastHash) {
		return
	}
	e := c.entry(s.last)
	e.after, e.gap = slot, uint16(gap)
	if gap == 0 {
		c.entry(slot).before = s.last
	}
}

// scan looks at positions up to and with limit. It returns the slot of a segment found at next, and holds the cache's lock then.
func (s *searcher) scan(limit int64) uint32 {
	o, c := &s.e.out, s.e.cache
	for s.next <= limit {
		at := int(s.next - o.base)
		switch {
		case !s.hashed:
			s.hash = sum(o.buf[at : at+s.size])
			s.hashed = true
		default:
			n := s.roll(at, int(limit-s.next)+1)
			at += n
			s.next += int64(n)
			if s.next > limit {
				return 0
			}
		}
		if s.next == s.begin {
			s.declares = s.hash
		}
		if c.maybe(s.hash) {
			if slot := s.verify(at); slot != 0 {
				return slot
			}
		}
		s.next++
	}
	return 0
}

// roll moves the hash on from the position before at to the first of n that the filter lets through, or that is begin, and
// returns how many it passed.
func (s *searcher) roll(at, n int) int {
	o := &s.e.out
	if stop := int(s.begin-o.base) - at; 0 <= stop && stop < n { // its hash is needed to declare it
		if passed := s.rollOn(at, stop+1); passed <= stop {
			return passed
		}
		return stop
	}
	return s.rollOn(at, n)
}

// rollOn is roll without an eye on begin. Two positions at a time, so that only every other multiplication has to wait for the
// one before.
func (s *searcher) rollOn(at, n int) int {
	o := &s.e.out
	f := s.e.cache.filter.Load()
	words, shift := f.words, f.shift&63
	h, gone := s.hash, s.gone
	out, in := o.buf[at-1:at-1+n], o.buf[at-1+s.size:at-1+s.size+n]
	in = in[:len(out)]
	i := 0
	for ; i < len(out)-1; i += 2 {
		first := uint64(in[i]) - uint64(out[i])*gone
		second := uint64(in[i+1]) - uint64(out[i+1])*gone
		h1 := h*base + first
		h = h*base2 + first*base + second
		bit1, bit2 := h1*spread>>shift, h*spread>>shift
		maybe1 := atomic.LoadUint64(&words[bit1>>6]) >> (bit1 & 63) & 1
		maybe2 := atomic.LoadUint64(&words[bit2>>6]) >> (bit2 & 63) & 1
		if maybe1|maybe2 == 0 {
			continue
		}
		if maybe1 != 0 {
			s.hash = h1
			return i
		}
		s.hash = h
		return i + 1
	}
	if i < len(out) {
		h = h*base + uint64(in[i]) - uint64(out[i])*gone
		s.hash = h
		if bit := h * spread >> shift; atomic.LoadUint64(&words[bit>>6])>>(bit&63)&1 != 0 {
			return i
		}
	}
	s.hash = h
	return n
}

// verify compares the bytes at an index with those of the segment that has their hash. It holds the cache's lock if they are the same.
func (s *searcher) verify(at int) uint32 {
	c := s.e.cache
	c.mu.Lock()
	slot := c.lookup(s.hash)
	if slot != 0 && c.visible(slot, s.e.flow) && bytes.Equal(c.segment(slot), s.e.out.buf[at:at+s.size]) {
		return slot
	}
	c.mu.Unlock()
	return 0
}

// declare declares the segment at begin.
func (s *searcher) declare() {
	o, c := &s.e.out, s.e.cache
	c.mu.Lock()
	y := early{hash: s.declares, last: s.last, lastHash: s.lastHash}
	known := c.lookup(s.declares) != 0
	slot := o.extract(int(s.begin-o.base), s.declares)
	s.follows(slot, 0)
	c.mu.Unlock()
	s.begin += int64(s.size)
	s.last, s.lastHash, s.guessed = slot, s.declares, false
	if s.early = y; !known && s.next < s.begin {
		s.early.slot = slot
	}
}
