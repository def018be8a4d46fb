// SPDX-License-Identifier: Apache-2.0

package wanproxy

import "sync"

// A stream keeps the last bytes of a flow at the sending end: those that are not acknowledged, since they may be asked for,
// and as many before each block as a segment reaches back. A block and what comes before it lie in one chunk, so that they
// can be searched without a copy.
type stream struct {
	back   int // bytes before a block that are kept
	chunks []*chunk
	end    int64 // bytes so far
	blocks []block
	done   int // blocks[done:] are not acknowledged; the others are dropped now and then
	first  uint64
}

type chunk struct {
	base int64 // position of buf[0] in the flow
	buf  []byte
}

// A block is what one payload stands for.
type block struct {
	pos   int64
	n     int
	epoch uint32 // of the cache when it was encoded
}

// Sizes of chunks in bytes: a chunk has room for some blocks such as the one that it is taken for.
var chunkPools = [...]struct {
	size int
	sync.Pool
}{{size: 20 << 10}, {size: 136 << 10}, {size: 1<<20 + 16<<10}}

func newChunk(n int) *chunk {
	for i := range chunkPools {
		if p := &chunkPools[i]; n <= p.size {
			if c, ok := p.Get().(*chunk); ok {
				return c
			}
			return &chunk{buf: make([]byte, 0, p.size)}
		}
	}
	return &chunk{buf: make([]byte, 0, n)}
}

func (c *chunk) free() {
	for i := range chunkPools {
		if p := &chunkPools[i]; cap(c.buf) == p.size {
			c.buf = c.buf[:0]
			p.Put(c) // and no longer looked at: another flow may have it
			return
		}
	}
}

// put appends a block and returns the chunk that it ends.
func (s *stream) put(src []byte, epoch uint32) *chunk {
	c := s.last()
	if c == nil || cap(c.buf)-len(c.buf) < len(src) {
		// Twice as much as the block, where the next size has that: chunks of small blocks are seldom changed.
		want := s.back + len(src)
		if len(src) <= 64<<10 {
			want += len(src)
		}
		c = s.begin(newChunk(want))
	}
	c.buf = append(c.buf, src...)
	s.blocks = append(s.blocks, block{s.end, len(src), epoch})
	s.end += int64(len(src))
	return c
}

// begin goes on in another chunk.
func (s *stream) begin(c *chunk) *chunk {
	c.base = s.end
	if old := s.last(); old != nil {
		tail := old.buf[max(0, len(old.buf)-s.back):]
		c.base -= int64(len(tail))
		c.buf = append(c.buf, tail...)
	}
	s.chunks = append(s.chunks, c)
	s.trim()
	return c
}

func (s *stream) last() *chunk {
	if len(s.chunks) == 0 {
		return nil
	}
	return s.chunks[len(s.chunks)-1]
}

// number returns the next block's.
func (s *stream) number() uint64 { return s.first + uint64(len(s.blocks)-s.done) }

// unacked returns the bytes that are not acknowledged.
func (s *stream) unacked() int {
	if s.done == len(s.blocks) {
		return 0
	}
	return int(s.end - s.blocks[s.done].pos)
}

// ack drops the blocks below a number.
func (s *stream) ack(number uint64) {
	for s.done < len(s.blocks) && s.first < number {
		s.done++
		s.first++
	}
	if 2*s.done >= len(s.blocks) {
		s.blocks = s.blocks[:copy(s.blocks, s.blocks[s.done:])]
		s.done = 0
	}
	s.trim()
}

// trim gives back the chunks of which nothing can be asked for.
func (s *stream) trim() {
	from := s.end
	if s.done < len(s.blocks) {
		from = s.blocks[s.done].pos
	}
	n := 0
	for n < len(s.chunks)-1 && s.chunks[n].base+int64(len(s.chunks[n].buf)) <= from {
		s.chunks[n].free()
		n++
	}
	if n > 0 {
		k := copy(s.chunks, s.chunks[n:])
		clear(s.chunks[k:])
		s.chunks = s.chunks[:k]
	}
}

// epoch returns the epoch of a block that is not acknowledged.
func (s *stream) epoch(number uint64) uint32 { return s.blocks[s.done+int(number-s.first)].epoch }

// block returns the bytes of a block that is not acknowledged.
func (s *stream) block(number uint64) ([]byte, bool) {
	if number < s.first || number >= s.number() {
		return nil, false
	}
	b := s.blocks[s.done+int(number-s.first)]
	for _, c := range s.chunks {
		if at := b.pos - c.base; b.pos >= c.base && at+int64(b.n) <= int64(len(c.buf)) {
			return c.buf[at : at+int64(b.n)], true
		}
	}
	return nil, false
}

// rest makes do with as little memory as possible.
func (s *stream) rest() {
	if old := s.last(); old != nil && s.unacked() == 0 && cap(old.buf) > chunkPools[0].size {
		s.begin(newChunk(s.back))
	}
}

// close gives everything back.
func (s *stream) close() {
	for _, c := range s.chunks {
		c.free()
	}
	*s = stream{back: s.back, end: s.end, first: s.number()}
}
