// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Spread is what several runs gave: the median, and the quartiles around it.
type Spread struct{ Median, Q1, Q3 float64 }

// Of sums runs up; without runs all is zero.
func Of(runs []float64) Spread {
	s := slices.Sorted(slices.Values(runs))
	return Spread{Median: quantile(s, 0.5), Q1: quantile(s, 0.25), Q3: quantile(s, 0.75)}
}

// quantile interpolates between the two nearest of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Digits rounds the three figures to so many significant digits: more of them would be noise, in JSON too.
func (s Spread) Digits(n int) Spread {
	return Spread{Significant(s.Median, n), Significant(s.Q1, n), Significant(s.Q3, n)}
}

// Significant rounds to n significant digits; what is no number is 0, for JSON has no word for it.
func Significant(v float64, n int) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return round(v, n-1-int(math.Floor(math.Log10(math.Abs(v)))))
}

// round rounds to so many decimals; fewer than none are tens and hundreds.
func round(v float64, decimals int) float64 {
	if decimals < 0 {
		unit := math.Pow10(-decimals)
		return math.Round(v/unit) * unit
	}
	unit := math.Pow10(decimals)
	return math.Round(v*unit) / unit
}

// Jain is the fairness index of Jain, Chiu and Hawe (1984): 1 where all get the same, 1/n where one gets all.
func Jain(values []float64) float64 {
	total, squares := 0.0, 0.0
	for _, v := range values {
		total += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return total * total / (float64(len(values)) * squares)
}

// Interleave gives the order of runs: in each round every one of n settings once, in an order drawn anew, so that neither a
// drift of the machine nor what ran just before favours any of them.
func Interleave(seed uint64, rounds, n int) [][]int {
	rng := rand.New(rand.NewPCG(seed, 1))
	order := make([][]int, rounds)
	for r := range order {
		order[r] = rng.Perm(n)
	}
	return order
}
