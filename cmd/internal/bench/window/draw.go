// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// course is what came when in a run, by binTime.
type course struct {
	cell *cell
	mode string
	bins []uint64
}

const (
	startTime    = 3 * time.Second // what the drawing of the start shows, in single bins
	coursePoints = 150             // of the drawing of the whole run
)

// plots draws throughput over time, all modes together: the first seconds, and the whole run. They are of the first run.
func (e *experiment) plots(r *bench.Report) {
	for i := range e.cells {
		c := &e.cells[i]
		var starts, wholes []bench.Line
		for _, m := range e.modes {
			for n := range e.courses {
				if k := &e.courses[n]; k.cell == c && k.mode == m.name {
					starts = append(starts, k.line(1, min(startTime, e.duration())))
					wholes = append(wholes, k.line(max(1, len(k.bins)/coursePoints), e.duration()))
				}
			}
		}
		if len(starts) == 0 {
			continue
		}
		title := fmt.Sprintf("Throughput, %s", c)
		name := fmt.Sprintf("%s-streams%d", c.fileName(), c.streams)
		axes := bench.Axes{Title: title, X: "s since connect()", Y: "Mbit/s"}
		r.Plots = append(r.Plots, bench.Plot{Name: "throughput-" + name, Draw: bench.Lines(axes, wholes)})
		axes.Title += ", the first seconds"
		r.Plots = append(r.Plots, bench.Plot{Name: "start-" + name, Draw: bench.Lines(axes, starts)})
	}
}

// line is the mean over step bins, up to a time.
func (k *course) line(step int, until time.Duration) bench.Line {
	l := bench.Line{Name: k.mode}
	bins := k.bins[:min(len(k.bins), int(until/binTime))]
	for from := 0; from+step <= len(bins); from += step {
		total := uint64(0)
		for _, b := range bins[from : from+step] {
			total += b
		}
		l.X = append(l.X, (float64(from)+float64(step)/2)*binTime.Seconds())
		l.Y = append(l.Y, float64(total)*8/1e6/(float64(step)*binTime.Seconds()))
	}
	return l
}
