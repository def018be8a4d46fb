// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

func TestTracePacer(t *testing.T) {
	start := time.Unix(1000, 0)
	type step struct {
		at, bytes   int // ms
		want        int // ms at which the bytes have left
		wantBacklog int // bytes, before
	}
	for name, steps := range map[string][]step{
		"one opportunity each": {{0, 1500, 0, 0}, {0, 1500, 0, 0}, {0, 1500, 5, 0}, {1, 1500, 10, 1500}, {1, 1500, 10, 3000}},
		"several in one":       {{1, 500, 5, 0}, {2, 500, 5, 500}, {3, 600, 10, 1000}, {5, 900, 10, 600}, {6, 1, 10, 1500}},
		"one over several":     {{1, 4000, 10, 0}, {9, 500, 10, 4000}, {9, 1, 10, 4500}}, // the trace's 0 again is at 10
		"lost when idle":       {{0, 100, 0, 0}, {3, 100, 5, 0}, {6, 100, 10, 0}, {11, 100, 15, 0}},
		"long idle":            {{1007, 1500, 1010, 0}, {1007, 3000, 1010, 1500}, {1007, 1, 1015, 4500}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTracePacer(&Trace{at: []uint32{0, 0, 5, 10}}, start)
			for i, s := range steps {
				now := start.Add(time.Duration(s.at) * time.Millisecond)
				if got := p.backlog(now); int(got) != s.wantBacklog {
					t.Errorf("step %d: a backlog of %g bytes, want %d", i, got, s.wantBacklog)
				}
				if got := p.pass(s.bytes, now).Sub(start); got != time.Duration(s.want)*time.Millisecond {
					t.Errorf("step %d: gone after %v, want %d ms", i, got, s.want)
				}
			}
			p.restart(start.Add(time.Hour))
			if got := p.pass(3000, start.Add(time.Hour)); got != start.Add(time.Hour) {
				t.Errorf("begun anew, the first opportunities are at %v", got)
			}
		})
	}
}
