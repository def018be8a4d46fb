// SPDX-License-Identifier: Apache-2.0

package native

import "math"

const (
	probeBytes = 4 << 10 // that are looked at
	probePiece = 256
	denseBits  = 7.9 // bits a byte: so many random bytes give 7.95
)

// dense tells whether bytes look like compressed or random ones: all values are about as frequent in a sample of them.
func dense(b []byte) bool {
	if len(b) < probeBytes {
		return false
	}
	var count [256]int
	step := len(b) / (probeBytes / probePiece)
	for at := 0; at+probePiece <= len(b) && at/step < probeBytes/probePiece; at += step {
		for _, v := range b[at : at+probePiece] {
			count[v]++
		}
	}
	entropy := float64(0)
	for _, n := range count {
		if n > 0 {
			entropy -= float64(n) / probeBytes * math.Log2(float64(n)/probeBytes)
		}
	}
	return entropy > denseBits
}
