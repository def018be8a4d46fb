// SPDX-License-Identifier: Apache-2.0

package history

import "slices"

// MaxReported is how many ranges a report names at most. What is left out is sent raw once more.
const MaxReported = 2048

// maxGeneration bounds what a peer can make this end begin after.
const maxGeneration = 1 << 63

// A Report says what a receiver holds of a group, or holds no longer.
type Report struct {
	Group      string
	Generation uint64 // 0: nothing was ever received
	Head       uint64 // position behind the newest byte
	Spans      []Span // sorted and disjoint
}

// A Span is the half-open range of positions [Low, High).
type Span struct{ Low, High uint64 }

// reported gives the ranges of a set that a report can name: if they are too many, the larger ones.
func reported(l []span) []Span {
	least := uint64(0)
	if len(l) > MaxReported {
		lengths := make([]uint64, len(l))
		for i, r := range l {
			lengths[i] = r.hi - r.lo
		}
		slices.Sort(lengths)
		least = lengths[len(l)-MaxReported]
	}
	out := make([]Span, 0, min(len(l), MaxReported))
	for _, r := range l {
		if r.hi-r.lo >= least && len(out) < MaxReported {
			out = append(out, Span{r.lo, r.hi})
		}
	}
	return out
}
