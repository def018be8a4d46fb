// SPDX-License-Identifier: Apache-2.0

package wanproxy

import "encoding/binary"

// The hash of a segment is the polynomial of its bytes at base, modulo 2^64. It rolls: dropping the first byte and adding one
// costs two multiplications. Weak as it is against someone who looks for collisions, none does harm: the encoder compares
// bytes, and the check of each payload finds a decoder that holds other bytes.
const (
	base  = 0xa24baed4963ee407
	base2 = base * base & (1<<64 - 1)
	base3 = base2 * base & (1<<64 - 1)
	base4 = base2 * base2 & (1<<64 - 1)
	base5 = base4 * base & (1<<64 - 1)
	base6 = base4 * base2 & (1<<64 - 1)
	base7 = base4 * base3 & (1<<64 - 1)
	base8 = base4 * base4 & (1<<64 - 1)

	// spread moves what a hash differs in to its top bits, where tables and filter look.
	spread = 0x9fb21c651e98df25
)

// sum computes the hash of a segment; its length is a multiple of 8.
func sum(b []byte) (h uint64) {
	for ; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b)
		// Independent products, so that only one multiplication waits for the last step's.
		hi := v&0xff*base7 + v>>8&0xff*base6 + v>>16&0xff*base5 + v>>24&0xff*base4
		lo := v>>32&0xff*base3 + v>>40&0xff*base2 + v>>48&0xff*base + v>>56
		h = h*base8 + hi + lo
	}
	return h
}

// power returns base to the n, by which a byte counts that leaves a segment of n bytes.
func power(n int) uint64 {
	p, b := uint64(1), uint64(base)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p *= b
		}
		b *= b
	}
	return p
}

// prefixHash hashes the first prefixBytes of a segment, for the index of how segments begin.
func prefixHash(b []byte) uint64 {
	_ = b[prefixBytes-1]
	h := binary.LittleEndian.Uint64(b)
	h = (h ^ h>>29) * spread
	h = (h + binary.LittleEndian.Uint64(b[8:])) * base
	h = (h ^ h>>31 + binary.LittleEndian.Uint64(b[16:])) * spread
	h = (h ^ h>>29 + binary.LittleEndian.Uint64(b[24:])) * base
	return h ^ h>>32
}

const prefixBytes = 32
