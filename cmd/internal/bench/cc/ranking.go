// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// studyOrder is the study's ranking of twelve TCP variants over LTE (2015) where the path is long and losses are many.
var studyOrder = []string{"illinois", "yeah", "westwood", "bic", "veno", "htcp", "vegas", "hybla", "highspeed", "cubic", "lp", "reno"}

// Where the study ranked, and how many algorithms make a ranking.
const (
	rankedDelay = 20 * time.Millisecond
	rankedLoss  = 1e-3
	leastRanked = 6
)

// ranked is an algorithm with its place.
type ranked struct {
	name  string
	mean  float64 // Mbit/s, geometric mean over the paths
	study int     // place there, among those that were run
}

// ranking orders ours of the twelve, the best first; nil where too few were run.
func (e *experiment) ranking() (list []ranked, paths int) {
	var cells []cell
	for _, c := range e.plan.cells {
		if c.trace == "" && c.delay >= rankedDelay && c.loss >= rankedLoss {
			cells = append(cells, c)
		}
	}
	for _, name := range studyOrder {
		i := slices.IndexFunc(e.plan.subjects, func(s subject) bool { return s.algorithm == name && s.ours() })
		if i < 0 {
			continue
		}
		var medians []float64
		for _, c := range cells {
			medians = append(medians, e.results().subject(c, e.plan.subjects[i]).median(goodput))
		}
		if mean := geometricMean(medians); mean > 0 {
			list = append(list, ranked{name, mean, len(list) + 1})
		}
	}
	if len(list) < leastRanked {
		return nil, 0
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return -cmp.Compare(a.mean, b.mean) })
	return list, len(cells)
}

// spearman is the rank correlation of a list in its order with the study's: 1 the same, 0 none, -1 reversed.
func spearman(list []ranked) float64 {
	n, squares := float64(len(list)), 0.0
	for i, r := range list {
		d := float64(i + 1 - r.study)
		squares += d * d
	}
	return 1 - 6*squares/(n*(n*n-1))
}

// rankingTable sets the order that was measured beside the study's.
func (e *experiment) rankingTable(r *bench.Report) {
	list, paths := e.ranking()
	if list == nil || e.beside != "" {
		return
	}
	t := bench.Table{Title: fmt.Sprintf("Ours in the order of their goodput over the %s with 20 ms and 1e-3 or more (geometric mean of medians), beside the "+
		"order of the study over LTE", plural(paths, "path")), Words: 1, Header: []string{"ALGORITHM", "Mbit/s", "PLACE", "THE STUDY'S"}}
	for i, a := range list {
		t.Add(a.name, figure(a.mean), strconv.Itoa(i+1), strconv.Itoa(a.study))
	}
	t.Notes = append(t.Notes, fmt.Sprintf("Spearman's rank correlation of the two is %.2f.", spearman(list)))
	r.Tables = append(r.Tables, t)
}
