// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"testing"
)

func TestGeometricMean(t *testing.T) {
	if got := geometricMean([]float64{0.5, 2, 4, 0}); math.Abs(got-math.Cbrt(4)) > 1e-12 {
		t.Error(got)
	}
	if got := geometricMean(nil); got != 0 {
		t.Error(got)
	}
}

func TestP95(t *testing.T) {
	var a, b sent
	for i := range uint32(100) {
		a.Samples = append(a.Samples, sample{SRTTUs: 1000 * (100 - i)})
	}
	b.Samples = []sample{{SRTTUs: 0}} // before the first measurement
	if got := p95RTT([]sent{a, b}); got != 95 {
		t.Error(got)
	}
	if got := p95RTT([]sent{b}); got != 0 {
		t.Error(got)
	}
}

func TestRatiosAndBest(t *testing.T) {
	c := cell{rate: 1}
	tl, own, other := subject{algorithm: "x", source: "tl", name: "tl_x"}, subject{algorithm: "x", source: "module", name: "x"},
		subject{algorithm: "y", source: "builtin", name: "y"}
	repeated := subject{algorithm: "x", source: "module-again", name: "x"}
	automatic := subject{algorithm: "auto", source: "tl"}
	var rs results
	for s, values := range map[subject][]float64{tl: {1, 9, 2}, own: {4, 1, 9}, other: {3}, repeated: {8}, automatic: {20}} {
		for _, v := range values {
			rs = append(rs, row{Algorithm: s.algorithm, Source: s.source, GoodputMbps: v, cell: c, subject: s})
		}
	}
	list := pairs([]subject{tl, own, repeated, other, automatic})
	if len(list) != 1 || list[0] != (pair{tl, own, repeated}) {
		t.Fatalf("pairs are %v", list)
	}
	if got := rs.ratio(c, tl, own); got != 0.5 {
		t.Errorf("the ratio of medians is %v", got)
	}
	if got := rs.ratio(cell{}, tl, own); got != 0 {
		t.Errorf("without runs the ratio is %v", got)
	}
	all := []subject{tl, own, repeated, other, automatic}
	if best, most, ok := rs.best(c, all, func(*subject) bool { return true }); best != own || most != 4 || !ok {
		t.Errorf("the best is %v with %v", best, most)
	}
	if best, _, ok := rs.best(c, all, func(s *subject) bool { return s.name == "none" }); ok {
		t.Errorf("the best of none is %v", best)
	}
}
