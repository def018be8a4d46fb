// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// plots draws what the paper's figures 15 and 16 do, bandwidth saved against latency saved, and ratios by file and codec.
func (e *experiment) plots(rows []latencyRow) (plots []bench.Plot) {
	for _, wan := range wansMbps {
		var points []bench.Line
		for _, r := range rows {
			if r.WAN == wan && r.Pass == "second" {
				points = append(points, bench.Line{Name: r.Codec + stageSuffix(r.Stage), X: []float64{100 * r.SavedLatency}, Y: []float64{100 * r.SavedBandwidth}})
			}
		}
		title := fmt.Sprintf("Second send: bandwidth and latency saved, WAN of %v Mbit/s, mean of %d files", wan, len(e.files))
		plots = append(plots, bench.Plot{Name: fmt.Sprintf("saved-%vmbit", wan), Draw: bench.Scatter(bench.Axes{Title: title,
			X: "latency saved, %", Y: "bandwidth saved, %"}, points)})
	}
	names := make([]string, len(e.files))
	for i, f := range e.files {
		names[i] = shortName(f.name)
	}
	for _, pass := range []string{"second", "mod5"} {
		var groups []bench.Group
		for _, s := range e.specs {
			g := bench.Group{Name: s.String()}
			for _, f := range e.files {
				k := e.passKey(s, e.cuts[0], pass)
				k.file = f.name
				g.Values = append(g.Values, e.seen[k].ratio())
			}
			groups = append(groups, g)
		}
		plots = append(plots, bench.Plot{Name: "ratio-" + pass, Draw: bench.LogBars(bench.Axes{Title: passTitles[pass], Y: "raw / wire", Names: names}, groups)})
	}
	return plots
}
