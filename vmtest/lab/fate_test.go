// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"slices"
	"testing"
)

func TestLossesInTheLongRun(t *testing.T) {
	const n = 1 << 21
	for _, c := range []struct{ loss, burst, wantBurst float64 }{
		{0, 0, 0},
		{0.01, 0, 1 / 0.99},
		{0.01, 1, 1 / 0.99},
		{0.01, 4, 4},
		{0.05, 10, 10},
		{0.3, 2, 2},
		{0.5, 1.5, 1.5},
		{0.5, 1, 2}, // independent, so two in a row are as likely as not
	} {
		ch := chain{key: lossKey(7, numberAB)}
		o := newOdds(c.loss, c.burst)
		lost, bursts, before := 0, 0, false
		for range n {
			now := ch.lost(o)
			if now {
				lost++
				if !before {
					bursts++
				}
			}
			before = now
		}
		burst := float64(lost) / float64(max(bursts, 1))
		if got := float64(lost) / n; math.Abs(got-c.loss) > 0.05*c.loss || math.Abs(burst-c.wantBurst) > 0.05*c.wantBurst {
			t.Errorf("loss %g in bursts of %g: got %g in bursts of %g", c.loss, c.burst, got, burst)
		}
	}
}

func TestLossesOfASeed(t *testing.T) {
	draw := func(seed, direction uint64, o odds) (lost [1000]bool) {
		ch := chain{key: lossKey(seed, direction)}
		for i := range lost {
			lost[i] = ch.lost(o)
		}
		return lost
	}
	o := newOdds(0.1, 0)
	first := draw(1, numberAB, o)
	if draw(1, numberAB, o) != first {
		t.Error("equal seeds lose different packets")
	}
	if draw(2, numberAB, o) == first || draw(1, numberBA, o) == first {
		t.Error("another seed, or the way back, loses the same packets")
	}
	for i, lost := range draw(1, numberAB, newOdds(0.2, 0)) {
		if first[i] && !lost {
			t.Fatalf("packet %d is lost at 0.1 and not at 0.2", i)
		}
	}
	for i, lost := range draw(1, numberAB, newOdds(1, 5)) {
		if !lost {
			t.Fatalf("packet %d passes where all are lost", i)
		}
	}
}

// The numbers are part of what a seed means: they must not change between versions, or results cannot be met again.
func TestLossesStayThoseOfTheSeed(t *testing.T) {
	if got := mix(golden); got != 0xe220a8397b1dcdaf { // splitmix64 of seed 0
		t.Errorf("the hash is %#x", got)
	}
	ch := chain{key: lossKey(1, numberAB)}
	var lost []int
	for i := range 200 {
		if ch.lost(newOdds(0.05, 0)) {
			lost = append(lost, i)
		}
	}
	if want := []int{31, 43, 47, 65, 68, 93, 113, 121, 130, 162, 172, 193}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, not %v", lost, want)
	}
}
