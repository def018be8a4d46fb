// SPDX-License-Identifier: Apache-2.0

package dedup

import "github.com/trunkline/trunkline/proxy/dedup/codec"

// Sizes in bytes of blocks and of their frames.
const (
	blockLeast = 64 << 10
	frameSmall = 32 << 10
	frameLarge = 128 << 10
	frameTiny  = 64 // part of the raw bytes below which a block is next to nothing on the wire
)

// A BlockSize is how many raw bytes a flow's next block takes at most. It grows while blocks are full and stay small on the
// wire, and shrinks when they do not: a block is delivered only when all of it has arrived.
type BlockSize struct{ bytes int }

// NewBlockSize makes the size of a flow's first block.
func NewBlockSize() BlockSize { return BlockSize{blockLeast} }

// Bytes returns the size, blockLeast to codec.MaxBlock.
func (s *BlockSize) Bytes() int { return s.bytes }

// Sent takes the length of a block and that of its frame; full: the block ended only because it was full.
func (s *BlockSize) Sent(raw, frame int, full bool) {
	switch {
	case frame > frameLarge:
		s.bytes = max(s.bytes/2, blockLeast)
	case full && frame < raw/frameTiny:
		s.bytes = min(s.bytes*4, codec.MaxBlock)
	case full && frame < frameSmall:
		s.bytes = min(s.bytes*2, codec.MaxBlock)
	}
}
