// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"math/rand/v2"
	"slices"
)

// Pieces that the second experiment inserts are multiples of pieceUnit up to pieceMost, in bytes.
const (
	pieceUnit = 2048
	pieceMost = 32 << 10
)

// insertion is one piece of a modification: at is where it goes, from is where it is copied from.
type insertion struct{ at, from, n int }

// modified returns a copy of data with pieces of itself inserted at random places until they make up share of its length, as
// the paper's second experiment does. Places are those of the original: one pass over it makes a copy of any size.
func modified(data []byte, share float64, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	var all []insertion
	total := 0
	for float64(total) < share*float64(len(data)) {
		n := min(pieceUnit*(1+rng.IntN(pieceMost/pieceUnit)), len(data))
		all = append(all, insertion{at: rng.IntN(len(data) + 1), from: rng.IntN(len(data) - n + 1), n: n})
		total += n
	}
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	out := make([]byte, 0, len(data)+total)
	done := 0
	for _, i := range all {
		out = append(out, data[done:i.at]...)
		out = append(out, data[i.from:i.from+i.n]...)
		done = i.at
	}
	return append(out, data[done:]...)
}

// shifted returns a copy of data with one byte in front.
func shifted(data []byte) []byte {
	out := make([]byte, 0, len(data)+1)
	return append(append(out, 'x'), data...)
}
