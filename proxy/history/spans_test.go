// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math/rand/v2"
	"testing"
)

// TestSpansModel compares the set with a plain array of flags.
func TestSpansModel(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		const n = 200
		var model [n]bool
		var s spans
		low := 0
		for range 300 {
			lo := low + r.IntN(n-low)
			hi := min(n, lo+r.IntN(20))
			if r.IntN(20) == 0 {
				low = min(low+r.IntN(8), n-1)
				s.trim(uint64(low))
				clear(model[:low])
			} else {
				s.add(uint64(lo), uint64(hi))
				for i := lo; i < hi; i++ {
					model[i] = true
				}
			}
			check(t, &s, model[:])
		}
	}
}

func check(t *testing.T, s *spans, model []bool) {
	t.Helper()
	count, before := int64(0), span{}
	for i, r := range s.live() {
		if r.lo >= r.hi || i > 0 && r.lo <= before.hi {
			t.Fatalf("ranges %v are not merged", s.live())
		}
		before = r
	}
	for i, want := range model {
		if want {
			count++
		}
		r, ok := s.find(uint64(i))
		if ok != want || ok && (r.lo > uint64(i) || r.hi <= uint64(i)) {
			t.Fatalf("find(%d) = %v, %v in %v", i, r, ok, s.live())
		}
	}
	if s.count() != count || s.empty() != (count == 0) {
		t.Fatalf("count %d, want %d", s.count(), count)
	}
}

func TestSpansContains(t *testing.T) {
	var s spans
	s.add(10, 20)
	s.add(30, 40)
	for _, c := range []struct {
		lo, hi uint64
		want   bool
	}{{10, 20, true}, {12, 13, true}, {9, 11, false}, {19, 21, false}, {15, 35, false}, {30, 40, true}, {40, 41, false}} {
		if got := s.contains(c.lo, c.hi); got != c.want {
			t.Errorf("contains(%d, %d) = %v", c.lo, c.hi, got)
		}
	}
}

func TestSpansLimit(t *testing.T) {
	s := spans{max: 10}
	for i := range uint64(10_000) {
		s.add(2*i, 2*i+1)
	}
	if n := len(s.live()); n != 10 || cap(s.all) > 100 {
		t.Errorf("%d ranges, room for %d", n, cap(s.all))
	}
	if !s.contains(2*9999, 2*9999+1) || s.contains(0, 1) {
		t.Error("not the oldest ranges were forgotten")
	}
}
