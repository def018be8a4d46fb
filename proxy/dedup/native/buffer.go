// SPDX-License-Identifier: Apache-2.0

package native

import (
	"sync"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// largeBlock is from how many bytes on a buffer has room for any block, and comes from a pool: new memory costs more than all that is
// done with it, where flows are short.
const largeBlock = 128 << 10

var largeBuffers = sync.Pool{New: func() any { return new([codec.MaxBlock]byte) }}

// sized returns a slice of n bytes, in b if that is large enough; else b is given back.
func sized(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	give(b)
	if n < largeBlock {
		return make([]byte, n, max(4<<10, n+n/4)) // in steps, so that a leg of small messages holds little
	}
	return largeBuffers.Get().(*[codec.MaxBlock]byte)[:n]
}

// give gives a buffer back that sized returned and nobody uses any more.
func give(b []byte) {
	if cap(b) == codec.MaxBlock {
		largeBuffers.Put((*[codec.MaxBlock]byte)(b[:codec.MaxBlock]))
	}
}
