// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"math/rand/v2"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// cut is how a file is cut into reads.
type cut struct {
	name  string
	bytes int // of each read; 0: drawn anew for each, from one byte to randomMost
}

const randomMost = 256 << 10

// parseCut reads a size, "random" or "whole".
func parseCut(s string) (cut, error) {
	switch s {
	case "random":
		return cut{name: s}, nil
	case "whole":
		return cut{name: s, bytes: 1 << 62}, nil
	}
	n, err := units.Size(s)
	if err != nil || n < 1 {
		return cut{}, fmt.Errorf("--cut %q is no size of reads; write it like 1460, 64KiB, random or whole", s)
	}
	return cut{name: s, bytes: int(n)}, nil
}

// reads hands out blocks made of whole reads, in the way the engine does for a flow that always has more to send.
type reads struct {
	cut
	each bool // every read is a block of its own, as on a link that is idle
	rng  *rand.Rand
	next int // what is left of the read that begins the next block; 0: draw one
}

func newReads(c cut, each bool, seed uint64) *reads {
	return &reads{cut: c, each: each, rng: rand.New(rand.NewPCG(seed, 3))}
}

func (r *reads) read() int {
	if r.next == 0 {
		if r.next = r.bytes; r.bytes == 0 {
			// Each order of magnitude is as likely as the others, so that small reads are among large ones.
			r.next = 1 + r.rng.IntN(randomMost>>r.rng.IntN(18))
		}
	}
	return r.next
}

// block returns the size of the next block: as many whole reads as fit into target, or a part of one that does not fit
// into a block at all. left is what the file still has.
func (r *reads) block(target, left int) int {
	n := 0
	for n < left {
		size := min(r.read(), left-n)
		switch {
		case n == 0 && size > target:
			r.next -= target
			return target
		case n+size > target:
			return n
		}
		n, r.next = n+size, 0
		if r.each {
			break
		}
	}
	return n
}
