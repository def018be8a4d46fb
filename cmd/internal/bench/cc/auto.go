// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// autoTable holds the automatic choice against the best of what it chooses from. The first run meets a path that the agent
// knows nothing of; the others one that it knows.
func (e *experiment) autoTable(r *bench.Report) {
	if e.beside != "" || !slices.ContainsFunc(e.rows, func(row row) bool { return row.subject.auto() }) {
		return
	}
	t := bench.Table{Title: "The automatic choice: the first run on each path, then the median of the later ones, against the best candidate",
		Words: 3, Header: []string{"PATH", "", "", "FIRST", "LATER", "BEST", "WHICH", "RATIO", "RETR.", "CHOSEN"}}
	var ratios []float64
	for _, c := range e.plan.cells {
		row, ratio := e.autoRow(c)
		if row != nil {
			t.Add(row...)
		}
		if ratio > 0 {
			ratios = append(ratios, ratio)
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("Goodput in Mbit/s; RATIO is LATER by BEST, RETR. the same of retransmissions. "+
		"It chooses from %s.", strings.Join(e.plan.candidates, ", ")))
	if len(ratios) > 0 {
		m := meanAndRange(ratios)
		t.Notes = append(t.Notes, fmt.Sprintf("Over all paths the geometric mean of RATIO is %s, from %s to %s.", m[0], m[1], m[2]))
	}
	r.Tables = append(r.Tables, t)
}

func (e *experiment) autoRow(c cell) (cells []string, ratio float64) {
	all := e.results().of(c, func(row *row) bool { return row.subject.auto() })
	if len(all) == 0 {
		return nil, 0
	}
	first, later := 0.0, all
	if i := slices.IndexFunc(all, func(row row) bool { return row.Run == 1 }); i >= 0 {
		first = all[i].GoodputMbps
		if len(all) > 1 {
			later = slices.Delete(slices.Clone(all), i, i+1)
		}
	}
	cells = []string{c.rateText(), c.delayText(), c.lossText(), figure(first), figure(later.median(goodput))}
	best, most, ok := e.results().best(c, e.plan.subjects, func(s *subject) bool { return slices.Contains(e.plan.candidates, s.name) })
	if !ok {
		return append(cells, "-", "-", "-", "-", chosen(later)), 0
	}
	by := e.results().subject(c, best)
	ratio = later.median(goodput) / most
	return append(cells, figure(most), best.name, ratioFigure(ratio), relative(later, by, retransmits), chosen(later)), ratio
}

func relative(a, b results, figure func(*row) float64) string {
	if by := b.median(figure); by > 0 {
		return ratioFigure(a.median(figure) / by)
	}
	return "-"
}

// chosen is what most runs ended with, and how often where not all did.
func chosen(rs results) string {
	times := map[string]int{}
	most := ""
	for i := range rs {
		name := rs[i].Chosen
		if times[name]++; times[name] > times[most] || most == "" {
			most = name
		}
	}
	if len(times) > 1 {
		return fmt.Sprintf("%s %d/%d", most, times[most], len(rs))
	}
	return most
}
