// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// report makes rows, tables and plots of what was found.
func (e *experiment) report() *bench.Report {
	r := &bench.Report{}
	for i := range e.rows {
		r.Rows = append(r.Rows, e.rows[i])
	}
	for i := range e.cells {
		if i > 0 && e.cells[i].path() == e.cells[i-1].path() {
			continue
		}
		if t := e.table(&e.cells[i]); len(t.Rows) > 0 {
			r.Tables = append(r.Tables, t)
		}
	}
	last := &r.Tables[len(r.Tables)-1]
	last.Notes = append(last.Notes, fmt.Sprintf("T90 is when the receiver first got 90 %% of the ceiling, from connect(), in seconds; the median, and the "+
		"worst. Nothing fills the path before 2.5 round trips, %.2f s at %s: the handshake, one more in which the SYN's window allows 64 kB, and the way there. Goodput in Mbit/s, from connect(). "+
		"MB is the most that the sockets of both ends held at a time (SO_MEMINFO, every %d ms).", 2.5*e.cells[0].rtt.Seconds(), e.cells[0].rttText(),
		meterEvery.Milliseconds()))
	last.Notes = append(last.Notes, e.discardedNote())
	last.Notes = append(last.Notes, e.notes...)
	e.plots(r)
	return r
}

// discardedNote says how often the machine was too busy for the emulator.
func (e *experiment) discardedNote() string {
	if e.discarded == 0 {
		return "No run was discarded: the emulator was never late by more than the queue holds."
	}
	return fmt.Sprintf("Discarded, and made again, since the emulator was late by more than the queue holds: %s, beside the %s that count.",
		plural(e.discarded, "attempt"), plural(len(e.rows), "run"))
}

// table is of one path: every mode with every number of streams.
func (e *experiment) table(path *cell) bench.Table {
	t := bench.Table{
		Title: fmt.Sprintf("%s: payload ceiling %s Mbit/s; runs of %s, path by %s", path.path(), bench.Figure(path.ceiling()/1e6),
			units.FormatDuration(e.duration()), e.emulation),
		Words: 1, Header: []string{"MODE", "STREAMS", "T90", "WORST", "IN 10 s", "IN 30 s", "RETRANSMITS", "JAIN", "MB", "RUNS", "DISCARDED"},
	}
	for i := range e.cells {
		c := &e.cells[i]
		if c.path() != path.path() {
			continue
		}
		for _, m := range e.modes {
			if rows := e.of(c, m.name); len(rows) > 0 {
				t.Add(append([]string{m.name, strconv.Itoa(c.streams)}, figures(rows)...)...)
			}
		}
	}
	return t
}

func (e *experiment) of(c *cell, mode string) (rows []*row) {
	for i := range e.rows {
		if r := &e.rows[i]; r.cell == c && r.Mode == mode {
			rows = append(rows, r)
		}
	}
	return rows
}

// figures sum rows up as the cells of a table. Whoever never filled the path took forever.
func figures(rows []*row) []string {
	var t90, in10, in30, retransmits, jain, peak []float64
	worst, discarded := 0.0, 0
	for _, r := range rows {
		took := math.Inf(1)
		if r.T90 != nil {
			took = *r.T90
		}
		t90, worst = append(t90, took), max(worst, took)
		in10, in30 = appendKnown(in10, r.Goodput10), appendKnown(in30, r.Goodput30)
		retransmits, jain = append(retransmits, float64(r.Retransmits)), append(jain, r.Jain)
		peak = append(peak, float64(r.PeakBytes)/1e6)
		discarded += r.Discarded
	}
	return []string{seconds(median(t90)), seconds(worst), mbps(in10), mbps(in30), bench.Figure(math.Round(bench.Of(retransmits).Median)),
		strconv.FormatFloat(bench.Of(jain).Median, 'f', 3, 64), bench.Figure(bench.Significant(bench.Of(peak).Median, 3)), strconv.Itoa(len(rows)),
		strconv.Itoa(discarded)}
}

func appendKnown(to []float64, v *float64) []float64 {
	if v == nil {
		return to
	}
	return append(to, *v)
}

// median of times of which some may be never.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func seconds(v float64) string {
	if math.IsInf(v, 1) {
		return "never"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func mbps(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	return bench.Figure(bench.Significant(bench.Of(values).Median, digits))
}
