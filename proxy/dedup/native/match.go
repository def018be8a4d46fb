// SPDX-License-Identifier: Apache-2.0

package native

import (
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/trunkline/trunkline/proxy/history"
)

const (
	// batch is how many bytes are scanned before their anchors are looked up together, so that cache misses overlap. Behind a match
	// the first ones are smaller, as most detours are short, and all selected places are looked up.
	batch, firstBatch = 16 << 10, 1 << 10
	// stride is how many bytes are compared before they are hashed, while they are still in the processor's nearest cache.
	stride = 16 << 10
	// What repeats fewer bytes than nearMatch, of what has just gone through the compressor, is left to that: it takes as few bytes
	// and less time for it.
	nearMatch = 1 << 10
	// A reference of fewer than detour bytes may be to a place that only begins alike.
	detour = 4 << 10
)

// A matcher finds what of a block the peer already holds.
type matcher struct {
	leg *history.Leg
	log *history.Sender

	// Of the leg, from block to block.
	next  uint64           // where the last match would go on; 0: nowhere
	alt   uint64           // where the match before it would, had it gone on: a detour ends there
	tail  [printBytes]byte // the last bytes before the block
	after int              // no anchor lies before this offset of the block
	gen   uint64           // the generation of next
	fresh bool             // nothing has been searched yet

	// Of the block.
	src     []byte
	near    uint64        // from there on a compressor finds what repeats by itself
	hash    xxhash.Digest // of src[:hashed]
	hashed  int
	at      history.Place
	lit     int  // where the current run of literals begins
	matched int  // bytes in references
	left    int  // no anchor below this offset is worth a look: what it leads to is left to the compressor
	stale   bool // some reference is to what will be overwritten before long
	ext     [2]uint64
	*scratch
}

// scratch is what a matcher needs while a block is encoded. Flows take turns in using it: memory that is new costs more than what is
// done with it.
type scratch struct {
	ops      []op
	samples  []history.Sample // anchors that were looked up, by offset
	cands    []history.Candidates
	inserted []history.Sample
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// prepare comes before the matcher's block is searched or noted, tidy when its operations are of no more use.
func (m *matcher) prepare() { m.scratch = scratches.Get().(*scratch) }

func (m *matcher) tidy() {
	m.src = nil
	if m.scratch != nil {
		scratches.Put(m.scratch)
		m.scratch = nil
	}
}

// run fills m.ops for a block that may refer to what p says.
func (m *matcher) run(src []byte, p history.Place) {
	m.begin(src)
	m.at = p
	m.ops, m.samples, m.ext = m.ops[:0], m.samples[:0], [2]uint64{}
	if m.gen != p.Generation {
		m.gen, m.next, m.alt = p.Generation, 0, 0
	}
	i, size := m.resume(0), firstBatch
	if i == 0 {
		size = batch // in the midst of new data
	}
	if i == 0 && m.fresh {
		size = firstBatch
	}
	m.fresh = false
	for i < len(src) {
		end := min(i+size, len(src))
		gap := anchorGap
		if size < batch {
			gap = 1
		}
		to := m.search(i, end, gap)
		if size = min(2*size, batch); to > end {
			size = firstBatch
		}
		i = to
	}
	if n := len(src) - m.lit; n > 0 {
		m.ops = append(m.ops, op{lit: n})
		m.pass(n)
	}
	m.end()
}

// note passes a block that is recorded and not searched: anchors far apart are enough to find it again.
func (m *matcher) note(src []byte, p history.Place) {
	m.begin(src)
	m.at = p
	if m.gen != p.Generation {
		m.gen, m.next, m.alt = p.Generation, 0, 0
	}
	m.samples = m.scan(0, len(src), sparseGap, m.samples[:0])
	m.ops = append(m.ops[:0], op{lit: len(src)})
	m.pass(len(src))
	m.end()
}

func (m *matcher) begin(src []byte) {
	m.src, m.lit, m.matched, m.stale = src, 0, 0, false
	m.hash.Reset()
	m.hashed = 0
}

// end prepares for the next block.
func (m *matcher) end() {
	n := copy(m.tail[:], m.tail[min(len(m.src), printBytes):])
	copy(m.tail[n:], m.src[max(0, len(m.src)-printBytes):])
	m.after = max(0, m.after-len(m.src))
}

// skip passes a block that is not searched.
func (m *matcher) skip(src []byte) {
	m.begin(src)
	m.pass(len(src))
	m.end()
}

// digest hashes the block up to an offset, if that is not done.
func (m *matcher) digest(to int) {
	if to > m.hashed {
		_, _ = m.hash.Write(m.src[m.hashed:to])
		m.hashed = to
	}
}

// sum returns the hash of the whole block.
func (m *matcher) sum() uint64 {
	if m.hashed == 0 {
		return xxhash.Sum64(m.src)
	}
	m.digest(len(m.src))
	return m.hash.Sum64()
}

// resume tries to go on from at where the last match ended, or where the one before it would be by now, and returns the
// offset behind what matches.
func (m *matcher) resume(at int) int {
	for _, pos := range [2]uint64{m.next, m.alt} {
		if pos == 0 {
			continue
		}
		n := m.forward(at, pos)
		// At a block's end a short piece is worth it: the next block goes on from there.
		if n >= minMatch || n > 0 && at+n == len(m.src) {
			m.add(at, n, pos)
			return at + n
		}
	}
	return at
}

// pass guesses that n bytes which did not match replace as many: the match may go on behind them.
func (m *matcher) pass(n int) {
	if m.next != 0 {
		m.next += uint64(n)
	}
	if m.alt != 0 {
		m.alt += uint64(n)
	}
}

// search scans src[from:to] for anchors gap bytes apart and takes the first match that one of its anchors leads to. It returns where to go on.
func (m *matcher) search(from, to, gap int) int {
	first := len(m.samples)
	m.samples = m.scan(from, to, gap, m.samples)
	found := m.samples[first:]
	m.cands = m.log.Lookup(found, m.at.Low, m.cands[:0])
	m.digest(to)
	end := from
	m.left = 0
	for k := range found {
		at := found[k].At
		if m.cands[k][0] == 0 || at <= end || at <= m.left {
			continue
		}
		if e := m.try(at, &m.cands[k]); e > 0 {
			end = e
			if n := m.resume(e); n > e {
				end = n
			}
		}
	}
	if end == from && m.next != 0 {
		// Data in which no anchor is found, such as a table of zeros: what did not match may replace as many bytes.
		end = max(from, m.try(to, &history.Candidates{m.next + uint64(to-m.lit)}))
	}
	return max(to, end)
}

// try verifies an anchor's candidates and adds the longest match. It returns the offset behind the match, 0 if there is none.
func (m *matcher) try(at int, c *history.Candidates) int {
	var from, n int
	var pos uint64
	for _, q := range c {
		if q == 0 {
			break
		}
		back := m.backward(at, q)
		fore := m.forward(at, q)
		if back+fore > n {
			from, n, pos = at-back, back+fore, q-uint64(back)
		}
	}
	if n < minMatch {
		return 0
	}
	if pos >= m.near && n < nearMatch {
		m.left = from + n
		return 0
	}
	back := m.swallow(from, pos)
	m.add(from-back, n+back, pos-uint64(back))
	return from + n
}

// swallow takes back references that a match, which reaches down to them, covers too: they were detours, taken before an
// anchor led to this match. It returns by how many bytes the match grows downwards.
func (m *matcher) swallow(from int, pos uint64) (back int) {
	for k := len(m.ops) - 1; k >= 0 && from-back == m.lit; k-- {
		o := m.ops[k]
		if o.n > detour {
			break
		}
		before := m.lit
		m.lit -= o.n + o.lit
		n := m.backward(before, pos-uint64(back))
		if n < o.n {
			m.lit = before
			break
		}
		m.ops, m.matched = m.ops[:k], m.matched-o.n
		back += n
	}
	return back
}

// add appends a reference, or lengthens the last one if it goes on there.
func (m *matcher) add(from, n int, pos uint64) {
	m.matched += n
	m.pass(from - m.lit)
	if m.next != pos {
		m.alt = m.next
	}
	m.next = pos
	m.pass(n)
	m.stale = m.stale || pos < m.at.Stale
	if k := len(m.ops) - 1; k >= 0 && from == m.lit && m.ops[k].pos+uint64(m.ops[k].n) == pos {
		m.ops[k].n += n
	} else {
		m.ops = append(m.ops, op{lit: from - m.lit, n: n, pos: pos})
	}
	m.lit = from + n
}

// extent looks up what may be referred to around pos; the last answer is kept, as what is allowed stays so for the block.
func (m *matcher) extent(pos uint64) (lo, hi uint64, ok bool) {
	if pos >= m.ext[0] && pos < m.ext[1] {
		return m.ext[0], m.ext[1], true
	}
	lo, hi, ok = m.leg.Extent(pos)
	lo = max(lo, m.at.Low)
	if !ok || pos < lo || pos >= hi {
		return 0, 0, false
	}
	m.ext = [2]uint64{lo, hi}
	return lo, hi, true
}

// forward counts the bytes that src from at on has in common with the log from pos on.
func (m *matcher) forward(at int, pos uint64) (n int) {
	for at+n < len(m.src) {
		q := pos + uint64(n)
		_, hi, ok := m.extent(q)
		if !ok {
			break
		}
		most := int(min(hi-q, uint64(len(m.src)-at-n), stride))
		c := m.log.Forward(q, m.src[at+n:at+n+most])
		n += c
		m.digest(at + n)
		if c < most {
			break
		}
	}
	return n
}

// backward counts the bytes before at, down to the last match, that are the same as before pos.
func (m *matcher) backward(at int, pos uint64) int {
	lo, _, ok := m.extent(pos - 1)
	if !ok {
		return 0
	}
	most := int(min(pos-lo, uint64(at-m.lit)))
	return m.log.Backward(pos, m.src[at-most:at])
}

// enter puts the anchors of the block, which was recorded at pos, into the index: those of literals, those of short references, because
// whoever repeats them repeats what is around them, too, and those of references whose source is so old that it will soon be
// overwritten. The anchors of other references lead to the same bytes already.
func (m *matcher) enter(pos uint64) {
	ins, from, k, next := m.inserted[:0], 0, 0, 0
	take := func(end int) {
		for ; k < len(m.samples) && m.samples[k].At <= end; k++ {
			if s := m.samples[k]; s.At >= next {
				ins = append(ins, s)
				next = s.At + anchorGap
			}
		}
	}
	for _, o := range m.ops {
		from += o.lit
		take(from)
		end := from + o.n
		switch {
		case o.n == 0:
		case o.n < detour:
			take(end)
		case o.pos < m.at.Stale:
			_, ins = scan(m.src, from, end, next, anchorGap, ins)
		}
		for k < len(m.samples) && m.samples[k].At <= end {
			k++
		}
		from = end
	}
	if len(ins) > 0 {
		m.log.Insert(ins, pos)
	}
	m.inserted = ins
}

// scan appends the anchors in src(from, to] to dst. Those of its first bytes are found by what came before the block.
func (m *matcher) scan(from, to, gap int, dst []history.Sample) []history.Sample {
	next := max(m.after, from+1)
	if from < printBytes {
		var joint [2 * printBytes]byte
		copy(joint[:], m.tail[:])
		n := copy(joint[printBytes:], m.src[:min(to, printBytes-1)])
		k := len(dst)
		next, dst = scan(joint[:], printBytes+from, printBytes+n, printBytes+next, gap, dst)
		for next -= printBytes; k < len(dst); k++ {
			dst[k].At -= printBytes
		}
	}
	m.after, dst = scan(m.src, max(from, printBytes-1), to, next, gap, dst)
	return dst
}
