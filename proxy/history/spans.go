// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"sort"
)

// A span is the half-open range of positions [lo, hi).
type span struct{ lo, hi uint64 }

// spans is a set of positions, kept as sorted, disjoint ranges whose neighbours are merged. It holds at most max ranges (0: no
// limit): beyond that it forgets the lowest one, so that nobody can blow it up with tiny ranges. The zero value is empty.
type spans struct {
	all []span
	off int // all[:off] is trimmed already; compacted now and then
	max int
}

func (s *spans) live() []span { return s.all[s.off:] }

// search returns the index in live of the first range that ends above pos.
func (s *spans) search(pos uint64) int {
	l := s.live()
	if n := len(l); n > 0 && l[n-1].lo <= pos { // the common case: the newest range
		if pos < l[n-1].hi {
			return n - 1
		}
		return n
	}
	return sort.Search(len(l), func(i int) bool { return l[i].hi > pos })
}

// add puts [lo, hi) into the set.
func (s *spans) add(lo, hi uint64) {
	if lo >= hi {
		return
	}
	l := s.live()
	n := len(l)
	if n == 0 || l[n-1].hi < lo {
		s.all = append(s.all, span{lo, hi})
		s.limit()
		return
	}
	if l[n-1].lo <= lo {
		l[n-1].hi = max(l[n-1].hi, hi)
		return
	}
	// i: the first range that touches [lo, hi); j: the first one wholly above.
	i := sort.Search(n, func(k int) bool { return l[k].hi >= lo })
	j := i
	for j < n && l[j].lo <= hi {
		lo, hi = min(lo, l[j].lo), max(hi, l[j].hi)
		j++
	}
	if j == i {
		s.all = append(s.all, span{})
		l = s.live()
		copy(l[i+1:], l[i:])
		l[i] = span{lo, hi}
		s.limit()
		return
	}
	l[i] = span{lo, hi}
	s.all = append(s.all[:s.off+i+1], l[j:]...)
}

func (s *spans) limit() {
	if s.max > 0 && len(s.all)-s.off > s.max {
		s.off++
	}
	s.compact()
}

func (s *spans) compact() {
	if s.off > 16 && s.off*2 > len(s.all) {
		n := copy(s.all, s.all[s.off:])
		s.all, s.off = s.all[:n], 0
	}
}

// trim takes every position below pos out of the set.
func (s *spans) trim(pos uint64) {
	for s.off < len(s.all) && s.all[s.off].hi <= pos {
		s.off++
	}
	if s.off == len(s.all) {
		s.clear()
		return
	}
	if s.all[s.off].lo < pos {
		s.all[s.off].lo = pos
	}
	s.compact()
}

func (s *spans) clear() { s.all, s.off = s.all[:0], 0 }

func (s *spans) empty() bool { return s.off == len(s.all) }

// find returns the range that holds pos.
func (s *spans) find(pos uint64) (span, bool) {
	l := s.live()
	if i := s.search(pos); i < len(l) && l[i].lo <= pos {
		return l[i], true
	}
	return span{}, false
}

// contains tells whether all of [lo, hi) is in the set.
func (s *spans) contains(lo, hi uint64) bool {
	r, ok := s.find(lo)
	return ok && hi <= r.hi
}

func (s *spans) bytes() int64 { return int64(cap(s.all)) * 16 }

// count returns how many positions are in the set.
func (s *spans) count() (n int64) {
	for _, r := range s.live() {
		n += int64(r.hi - r.lo)
	}
	return n
}

// remove takes [lo, hi) out of the set.
func (s *spans) remove(lo, hi uint64) {
	if lo >= hi {
		return
	}
	l := s.live()
	i := sort.Search(len(l), func(k int) bool { return l[k].hi > lo })
	j := i
	var rest []span
	for ; j < len(l) && l[j].lo < hi; j++ {
		if l[j].lo < lo {
			rest = append(rest, span{l[j].lo, lo})
		}
		if l[j].hi > hi {
			rest = append(rest, span{hi, l[j].hi})
		}
	}
	if i < j {
		s.all = slices.Replace(s.all, s.off+i, s.off+j, rest...)
		s.limit()
	}
}

// intersect returns what is in both of two sorted lists of disjoint ranges.
func intersect(a, b []span) (both []span) {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if lo, hi := max(a[i].lo, b[j].lo), min(a[i].hi, b[j].hi); lo < hi {
			both = append(both, span{lo, hi})
		}
		if a[i].hi < b[j].hi {
			i++
		} else {
			j++
		}
	}
	return both
}

// valid tells whether a list of ranges that was read is one of a set: sorted, disjoint, none empty, and all within [0, end).
func valid(l []span, end uint64) bool {
	before := uint64(0)
	for i, r := range l {
		if r.lo >= r.hi || r.hi > end || i > 0 && r.lo <= before {
			return false
		}
		before = r.hi
	}
	return true
}

// subtract returns what of a range is not in a sorted list of disjoint ones.
func subtract(r span, l []span) (rest []span) {
	for _, other := range l {
		if other.hi <= r.lo {
			continue
		}
		if other.lo >= r.hi {
			break
		}
		if other.lo > r.lo {
			rest = append(rest, span{r.lo, other.lo})
		}
		r.lo = max(r.lo, other.hi)
	}
	if r.lo < r.hi {
		rest = append(rest, r)
	}
	return rest
}
