// SPDX-License-Identifier: Apache-2.0

package wanproxy

import "bytes"

// finish sends the end of the block, which is no whole segment.
func (s *searcher) finish(end int64) {
	o, c := &s.e.out, s.e.cache
	if int(end-o.base)-o.at >= worthwhile && s.begin < end {
		c.mu.Lock()
		if !s.guess() {
			s.tail()
		}
		c.mu.Unlock()
	}
	o.literal(len(o.buf))
}

// guess refers to a segment that begins as the flow's last bytes go: the one that came here last time, or any that begins as the
// bytes at begin do. The cache is locked. (To guess at more places finds a little more on the first send, and spoils the second:
// segments then lie where blocks happened to end.)
func (s *searcher) guess() bool {
	o, c := &s.e.out, s.e.cache
	at := int(s.begin - o.base)
	slot, gap := s.after()
	if slot != 0 && s.likely(slot, at+gap) {
		s.refersTo(slot, at+gap)
		return true
	}
	if s.guessed || len(o.buf)-at < prefixBytes {
		return false
	}
	s.guessed = true
	if slot = c.beginning(o.buf[at:]); slot == 0 || !s.likely(slot, at) {
		return false
	}
	s.refersTo(slot, at)
	return true
}

// likely tells whether a slot's segment begins as the bytes from an index on do, and referring to it is worthwhile.
func (s *searcher) likely(slot uint32, at int) bool {
	o, c := &s.e.out, s.e.cache
	return len(o.buf)-max(o.at, at) >= worthwhile && c.visible(slot, s.e.flow) && bytes.HasPrefix(c.segment(slot), o.buf[at:])
}

// refersTo refers to a segment that begins at an index and goes on behind the block.
func (s *searcher) refersTo(slot uint32, at int) {
	o, c, y := &s.e.out, s.e.cache, &s.carry
	begin := o.base + int64(at)
	y.live, y.from, y.begin, y.slot, y.hash, y.used = true, s.begin, begin, slot, c.entry(slot).hash, len(o.buf)-at
	y.segment = append(y.segment[:0], c.segment(slot)...)
	o.ref(at, slot, len(o.buf)-at)
	s.follows(slot, begin-s.begin)
}

// tail refers to what overlaps the last segment, if the block ends as the flow did last time. The cache is locked.
func (s *searcher) tail() {
	o, c := &s.e.out, s.e.cache
	if !o.over {
		return
	}
	at := max(o.at, int(s.begin-o.base))
	b := o.buf[at:]
	if s.last != 0 && c.holds(s.last, s.lastHash) && len(b) >= worthwhile {
		slot := c.entry(s.last).over
		if slot != 0 && c.visible(slot, s.e.flow) && bytes.HasSuffix(c.segment(slot), b) {
			o.literal(at)
			o.overRef(len(o.buf), slot)
			return
		}
	}
	if len(b) >= minOverlap && len(b) < s.size && len(o.buf) >= s.size && o.at == at && bytes.Count(b, []byte{magic}) > overExtBytes {
		o.overExt(len(o.buf))
	}
}

// keepTail keeps the segment that ends the flow, as OVER_EXT does, but without a word: the decoder does the same. acknowledged: the
// peer has got all of it.
func (s *searcher) keepTail(acknowledged bool) {
	o, c := &s.e.out, s.e.cache
	end := s.e.sent.last()
	if end == nil || !overlaps(o.over, o.gap, s.e.sent.end, s.size) {
		return
	}
	o.buf, o.base = end.buf, end.base
	c.mu.Lock()
	defer c.mu.Unlock()
	slot, h := o.keep(len(o.buf))
	if c.holds(slot, h) && c.entry(slot).owner == s.e.flow {
		c.entry(slot).owner = nobody
		if acknowledged {
			c.entry(slot).owner = everyone
		}
	}
}
