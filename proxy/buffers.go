// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two between these, in bytes. The largest holds any DATA frame.
const (
	minBufferBits = 12
	maxBufferBits = 21
)

// buffers lends byte slices, so that an idle flow holds none.
type buffers struct {
	classes [maxBufferBits - minBufferBits + 1]sync.Pool
}

func class(n int) int {
	return max(bits.Len(uint(n-1)), minBufferBits) - minBufferBits
}

// get returns a slice of length n; what is in it is undefined.
func (b *buffers) get(n int) []byte {
	c := class(max(n, 1))
	if c >= len(b.classes) {
		return make([]byte, n)
	}
	if p, ok := b.classes[c].Get().(*[]byte); ok {
		return (*p)[:n]
	}
	return make([]byte, n, 1<<(c+minBufferBits))
}

// put takes a slice back, wherever it came from.
func (b *buffers) put(s []byte) {
	c := bits.Len(uint(cap(s))) - 1 - minBufferBits // the class that cap surely fills
	if c < 0 || c >= len(b.classes) {
		return
	}
	s = s[:0]
	b.classes[c].Put(&s)
}
