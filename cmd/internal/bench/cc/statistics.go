// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// geometricMean of what is above 0; of nothing it is 0.
func geometricMean(values []float64) float64 {
	logs, n := 0.0, 0
	for _, v := range values {
		if v > 0 {
			logs += math.Log(v)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return math.Exp(logs / float64(n))
}

// p95RTT is what 95 of 100 samples of the smoothed round trip do not exceed, in ms, of all flows together.
func p95RTT(flows []sent) float64 {
	var us []uint32
	for i := range flows {
		for _, s := range flows[i].Samples {
			if s.SRTTUs > 0 {
				us = append(us, s.SRTTUs)
			}
		}
	}
	if len(us) == 0 {
		return 0
	}
	slices.Sort(us)
	return float64(us[int(math.Ceil(0.95*float64(len(us))))-1]) / 1e3
}

// results finds rows.
type results []row

func (rs results) of(c cell, want func(*row) bool) (found results) {
	for i := range rs {
		if rs[i].cell == c && want(&rs[i]) {
			found = append(found, rs[i])
		}
	}
	return found
}

// subject are the rows of one algorithm of one source.
func (rs results) subject(c cell, s subject) results {
	return rs.of(c, func(r *row) bool { return r.Algorithm == s.algorithm && r.Source == s.source })
}

func (rs results) median(figure func(*row) float64) float64 {
	values := make([]float64, len(rs))
	for i := range rs {
		values[i] = figure(&rs[i])
	}
	return bench.Of(values).Median
}

func goodput(r *row) float64     { return r.GoodputMbps }
func retransmits(r *row) float64 { return float64(r.Retransmits) }
func p95(r *row) float64         { return r.P95RTTMs }
func besideOf(r *row) float64    { return r.BesideMbps }

// pair is an algorithm of ours and the kernel's.
type pair struct{ ours, kernels, again subject }

// pairs are those of the subjects that both have, in their order.
func pairs(subjects []subject) (list []pair) {
	for _, s := range subjects {
		if s.auto() || !s.ours() {
			continue
		}
		p := pair{ours: s}
		for _, k := range subjects {
			switch {
			case k.algorithm != s.algorithm || k.ours():
			case strings.HasSuffix(k.source, again):
				p.again = k
			default:
				p.kernels = k
			}
		}
		if p.kernels.name != "" {
			list = append(list, p)
		}
	}
	return list
}

// ratio is the median goodput of one by that of another; 0: there is none of both.
func (rs results) ratio(c cell, of, by subject) float64 {
	a, b := rs.subject(c, of).median(goodput), rs.subject(c, by).median(goodput)
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// best is the subject with the highest median goodput among those wanted; ok is false where there is none.
func (rs results) best(c cell, subjects []subject, want func(*subject) bool) (best subject, median float64, ok bool) {
	for _, s := range subjects {
		if s.auto() || strings.HasSuffix(s.source, again) || !want(&s) {
			continue
		}
		if m := rs.subject(c, s).median(goodput); m > median {
			best, median, ok = s, m, true
		}
	}
	return best, median, ok
}
