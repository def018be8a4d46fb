// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// trace is the course of a run.
type trace struct {
	subject subject
	cell    cell
	run     int
	samples []sample
	bins    []uint64 // bytes received, by binTime
}

func newTrace(f *flows) *trace {
	first := &f.measured[0]
	return &trace{subject: *f.subject, cell: *f.cell, run: f.run, samples: first.Samples, bins: f.got[first.ID].Bins}
}

func (t *trace) cwnd() bench.Line {
	l := bench.Line{Name: t.subject.String()}
	for _, s := range t.samples {
		l.X, l.Y = append(l.X, float64(s.AtUs)/1e6), append(l.Y, float64(s.Cwnd))
	}
	return l
}

// throughput is a mean over step bins.
func (t *trace) throughput(step int) bench.Line {
	l := bench.Line{Name: t.subject.String()}
	for from := 0; from+step <= len(t.bins); from += step {
		total := uint64(0)
		for _, b := range t.bins[from : from+step] {
			total += b
		}
		seconds := float64(step) * binTime.Seconds()
		l.X, l.Y = append(l.X, (float64(from)+float64(step)/2)*binTime.Seconds()), append(l.Y, float64(total)*8/1e6/seconds)
	}
	return l
}

// plots draws the grid and the courses.
func (e *experiment) plots(r *bench.Report) {
	for i, name := range []string{"delay", "loss", "rate"} {
		d := &dimensions[i]
		if len(d.values(e.plan.cells)) < 2 || e.beside != "" {
			continue
		}
		for _, p := range pagesAlong(e.plan.cells, d) {
			r.Plots = append(r.Plots, e.goodputPlot(p, "goodput-"+name+"-"+fileName(p.title)))
		}
	}
	e.drawCourses(r)
}

// fileName writes a title for the name of a file.
func fileName(title string) string {
	title = strings.NewReplacer("bit/s", "bit", " ", "", ",", "-", "loss", "loss-").Replace(title)
	return strings.Trim(title, "-")
}

func (e *experiment) goodputPlot(p page, name string) bench.Plot {
	axes := bench.Axes{Title: "Goodput, " + p.title, X: p.what, Y: "Mbit/s", Names: p.heads, Points: true}
	var lines []bench.Line
	for _, s := range e.plan.subjects {
		if strings.HasSuffix(s.source, again) {
			continue
		}
		l := bench.Line{Name: s.String()}
		for i, c := range p.cells {
			if m := e.results().subject(c, s).median(goodput); m > 0 {
				l.X, l.Y = append(l.X, float64(i)), append(l.Y, m)
			}
		}
		lines = append(lines, l)
	}
	return bench.Plot{Name: name, Draw: bench.Lines(axes, lines)}
}

// drawCourses draws windows and throughput over time: ours together, each of ours beside the kernel's, and run by run.
func (e *experiment) drawCourses(r *bench.Report) {
	if len(e.courses) == 0 {
		return
	}
	where := e.courses[0].cell
	for run := 1; run <= e.plan.runs; run++ {
		var together []*trace
		for i := range e.courses {
			if t := &e.courses[i]; t.run == run && (t.subject.ours() || e.lacks(t)) {
				together = append(together, t)
			}
		}
		if len(together) > 0 {
			e.drawRun(r, fmt.Sprintf("%s, run %d", where.String(), run), fmt.Sprintf("run%d", run), together)
		}
	}
	for _, name := range longNames {
		var lines []bench.Line
		for i := range e.courses {
			if t := &e.courses[i]; t.run == 1 && t.subject.algorithm == name {
				lines = append(lines, t.cwnd())
			}
		}
		if len(lines) > 1 {
			r.Plots = append(r.Plots, bench.Plot{Name: "cwnd-" + name, Draw: bench.Lines(bench.Axes{
				Title: "Congestion window of " + name + ", " + where.String() + ", same losses", X: "s", Y: "packets"}, lines)})
		}
	}
	r.Files["traces.tsv"] = e.tracesFile()
}

// lacks says whether a trace of the kernel's has none of ours beside it.
func (e *experiment) lacks(t *trace) bool {
	return !slices.ContainsFunc(e.courses, func(o trace) bool { return o.subject.algorithm == t.subject.algorithm && o.subject.ours() })
}

func (e *experiment) drawRun(r *bench.Report, where, suffix string, traces []*trace) {
	var windows, rates []bench.Line
	step := max(1, int(e.plan.duration/binTime/throughputPoints))
	for _, t := range traces {
		rates = append(rates, t.throughput(step))
		if !t.subject.auto() { // what it chose may have a window of quite another kind
			windows = append(windows, t.cwnd())
		}
	}
	r.Plots = append(r.Plots,
		bench.Plot{Name: "cwnd-" + suffix, Draw: bench.Lines(bench.Axes{Title: "Congestion window, " + where, X: "s", Y: "packets"}, windows)},
		bench.Plot{Name: "throughput-" + suffix, Draw: bench.Lines(bench.Axes{Title: "Throughput, " + where, X: "s", Y: "Mbit/s"}, rates)})
}

const (
	throughputPoints = 300
	tracePoints      = 3000 // of each course in the file
)

// tracesFile is the courses for other programs to draw.
func (e *experiment) tracesFile() []byte {
	var b bytes.Buffer
	b.WriteString("algorithm\tsource\trun\tdelay_ms\tloss\ttime_s\tcwnd_packets\tssthresh_packets\tsrtt_ms\n")
	for _, t := range e.courses {
		step := max(1, len(t.samples)/tracePoints)
		for i := 0; i < len(t.samples); i += step {
			s := &t.samples[i]
			fmt.Fprintf(&b, "%s\t%s\t%d\t%g\t%g\t%.4f\t%d\t%d\t%.3f\n", t.subject.algorithm, t.subject.source, t.run, t.cell.delay.Seconds()*1e3,
				t.cell.loss, float64(s.AtUs)/1e6, s.Cwnd, s.Ssthresh, float64(s.SRTTUs)/1e3)
		}
	}
	return b.Bytes()
}
