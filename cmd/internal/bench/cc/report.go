// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// report makes rows, tables and plots of what was found.
func (e *experiment) report() *bench.Report {
	r := &bench.Report{Files: map[string][]byte{}}
	for i := range e.rows {
		r.Rows = append(r.Rows, e.rows[i])
	}
	e.goodputTables(r)
	e.rankingTable(r)
	e.pairTables(r)
	e.autoTable(r)
	e.besideTables(r)
	e.delayTables(r)
	e.plots(r)
	e.noteLate()
	first := &r.Tables[0]
	first.Notes = append(first.Notes, e.notes...)
	return r
}

// noteLate warns of runs in which the emulator did not keep up: their path was not what it is called.
func (e *experiment) noteLate() {
	const tooLateMs = 1
	n, worst := 0, 0.0
	for i := range e.rows {
		if late := e.rows[i].LateMs; late > tooLateMs {
			n++
			worst = max(worst, late)
		}
	}
	if n > 0 {
		e.notes = append(e.notes, fmt.Sprintf("This machine was busy: in %d of %s the path's emulator was late by more than %d ms on average, by %s ms "+
			"at worst (late_ms in the rows).", n, plural(len(e.rows), "run"), tooLateMs, bench.Figure(worst)))
	}
}

// how says what a run was.
func (e *experiment) how() string {
	how := "sent for " + units.FormatDuration(e.plan.duration)
	if e.plan.duration == 0 {
		how = strconv.FormatUint(e.bytes, 10) + " bytes"
	}
	if e.flowCount > 1 {
		how += fmt.Sprintf(", %d flows together", e.flowCount)
	}
	if e.beside != "" {
		how += ", beside " + e.plan.beside
	}
	if len(e.changes) > 0 {
		how += ", changing " + strings.Join(e.changes, " ")
	}
	runs := "1 run"
	if e.plan.runs > 1 {
		runs = fmt.Sprintf("medians of %d runs", e.plan.runs)
	}
	return fmt.Sprintf("%s, %s, queue %g BDP, path by %s", how, runs, e.queueBDP, e.plan.emulation)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (e *experiment) results() results { return e.rows }

// goodputTables are the grid.
func (e *experiment) goodputTables(r *bench.Report) {
	for _, p := range pages(e.plan.cells) {
		t := bench.Table{Title: fmt.Sprintf("Goodput, Mbit/s, %s; %s", p.String(), e.how()), Words: 2,
			Header: append([]string{"ALGORITHM", "SOURCE"}, p.heads...)}
		for _, s := range e.plan.subjects {
			row := []string{s.algorithm, s.source}
			for _, c := range p.cells {
				row = append(row, figure(e.results().subject(c, s).median(goodput)))
			}
			t.Add(row...)
		}
		r.Tables = append(r.Tables, t)
	}
}

// figure leaves out what there is not.
func figure(v float64) string {
	if v == 0 {
		return "-"
	}
	return bench.Figure(bench.Significant(v, 3))
}

// ratioFigure always has two decimals: that is what ratios are compared by.
func ratioFigure(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// pairTables hold ours against the kernel's own, and that against itself.
func (e *experiment) pairTables(r *bench.Report) {
	list := pairs(e.plan.subjects)
	if len(list) == 0 || e.beside != "" {
		return
	}
	for _, p := range pages(e.plan.cells) {
		t := bench.Table{Title: fmt.Sprintf("Goodput of ours by that of the kernel's, with the same losses: %s", p.String()), Words: 2,
			Header: append([]string{"ALGORITHM", "WHOSE"}, p.heads...)}
		for _, pr := range list {
			t.Add(e.ratioRow(pr, pr.ours, "ours", p.cells)...)
			if pr.again.name != "" {
				t.Add(e.ratioRow(pr, pr.again, "kernel's", p.cells)...)
			}
		}
		r.Tables = append(r.Tables, t)
	}
	t := bench.Table{Title: "The same over all paths: geometric mean, lowest and highest; NOISE is the kernel's own against itself", Words: 2,
		Header: []string{"ALGORITHM", "KERNEL'S", "PATHS", "MEAN", "LOWEST", "HIGHEST", "NOISE", "LOWEST", "HIGHEST"}}
	for _, pr := range list {
		ours, noise := e.ratios(pr, pr.ours), e.ratios(pr, pr.again)
		row := []string{pr.ours.algorithm, pr.kernels.source, strconv.Itoa(len(ours))}
		t.Add(append(append(row, meanAndRange(ours)...), meanAndRange(noise)...)...)
	}
	r.Tables = append(r.Tables, t)
}

func (e *experiment) ratioRow(p pair, of subject, whose string, cells []cell) []string {
	row := []string{p.ours.algorithm, whose}
	for _, c := range cells {
		row = append(row, ratioFigure(e.results().ratio(c, of, p.kernels)))
	}
	return row
}

func (e *experiment) ratios(p pair, of subject) (list []float64) {
	for _, c := range e.plan.cells {
		if v := e.results().ratio(c, of, p.kernels); v > 0 {
			list = append(list, v)
		}
	}
	return list
}

func meanAndRange(values []float64) []string {
	if len(values) == 0 {
		return []string{"-", "-", "-"}
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return []string{ratioFigure(geometricMean(values)), ratioFigure(low), ratioFigure(high)}
}

// besideTables say who got what of a path that two share.
func (e *experiment) besideTables(r *bench.Report) {
	if e.beside == "" && e.flowCount == 1 {
		return
	}
	for _, c := range e.plan.cells {
		t := bench.Table{Title: fmt.Sprintf("Fairness, %s; %s", c.String(), e.how()), Words: 2,
			Header: []string{"ALGORITHM", "SOURCE", "Mbit/s", "JAIN", "BESIDE Mbit/s", "BY ITS OWN", "JAIN OF ALL", "RETR.", "BESIDE'S"}}
		alone := e.results().of(c, func(row *row) bool { return row.subject.name == e.plan.beside && !row.subject.auto() }).median(besideOf)
		for _, s := range e.plan.subjects {
			rs := e.results().subject(c, s)
			share := 0.0
			if alone > 0 {
				share = rs.median(besideOf) / alone
			}
			t.Add(s.algorithm, s.source, figure(rs.median(goodput)), ratioFigure(rs.median(func(r *row) float64 { return r.Jain })),
				figure(rs.median(besideOf)), ratioFigure(share), ratioFigure(rs.median(func(r *row) float64 { return r.JainBetween })),
				figure(rs.median(retransmits)), figure(rs.median(func(r *row) float64 { return float64(r.BesideRetransmits) })))
		}
		if all := e.results().of(c, func(row *row) bool { return row.subject.auto() }); len(all) > 0 {
			t.Notes = append(t.Notes, "auto ended with "+chosen(all)+".")
		}
		if e.beside != "" {
			t.Notes = append(t.Notes, "BY ITS OWN is what "+e.plan.beside+" got here, by what it gets beside another "+e.plan.beside+".")
		}
		r.Tables = append(r.Tables, t)
	}
}

// delayTables are for measured links and for the automatic choice: what an algorithm carries is not all, if it fills the queue.
func (e *experiment) delayTables(r *bench.Report) {
	if len(e.traces) == 0 {
		return
	}
	for _, c := range e.plan.cells {
		if c.trace == "" {
			return
		}
		t := bench.Table{Title: fmt.Sprintf("The link of %s; %s", c.String(), e.how()), Words: 2,
			Header: []string{"ALGORITHM", "SOURCE", "Mbit/s", "BY THE BEST", "p95 RTT ms", "BY THE BEST'S", "RETRANSMITS"}}
		best, most, ok := e.results().best(c, e.plan.subjects, func(*subject) bool { return true })
		for _, s := range e.plan.subjects {
			rs := e.results().subject(c, s)
			relative, delay := 0.0, 0.0
			if ok {
				relative = rs.median(goodput) / most
				delay = rs.median(p95) / e.results().subject(c, best).median(p95)
			}
			t.Add(s.algorithm, s.source, figure(rs.median(goodput)), ratioFigure(relative), figure(rs.median(p95)), ratioFigure(delay),
				figure(rs.median(retransmits)))
		}
		r.Tables = append(r.Tables, t)
	}
}
