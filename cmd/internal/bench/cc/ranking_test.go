// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

func TestSpearman(t *testing.T) {
	same := []ranked{{study: 1}, {study: 2}, {study: 3}, {study: 4}}
	reversed := slices.Clone(same)
	slices.Reverse(reversed)
	for _, c := range []struct {
		list []ranked
		want float64
	}{{same, 1}, {reversed, -1}, {[]ranked{{study: 2}, {study: 1}, {study: 3}, {study: 4}}, 0.8}} {
		if got := spearman(c.list); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.list, got, c.want)
		}
	}
}

func TestRanking(t *testing.T) {
	long, short := cell{delay: 50 * time.Millisecond, loss: 1e-2}, cell{delay: 5 * time.Millisecond, loss: 1e-2}
	e := &experiment{plan: &plan{cells: []cell{long, short}}}
	add := func(name string, mbps float64) {
		s := subject{algorithm: name, source: "tl", name: "tl_" + name}
		e.plan.subjects = append(e.plan.subjects, s)
		for _, c := range e.plan.cells {
			e.rows = append(e.rows, row{Algorithm: name, Source: "tl", GoodputMbps: mbps, cell: c, subject: s})
			mbps = 40 - mbps // the short path does not count
		}
	}
	for i, name := range []string{"illinois", "reno", "yeah", "veno", "cubic"} {
		add(name, float64(20-i))
	}
	if list, _ := e.ranking(); list != nil {
		t.Errorf("five are ranked: %v", list)
	}
	add("bbr", 30) // is not of the study
	add("westwood", 1)
	list, paths := e.ranking()
	if len(list) != 6 || paths != 1 || list[0].name != "illinois" || list[1].name != "reno" || list[1].study != 6 ||
		math.Abs(list[1].mean-19) > 1e-9 || list[5].name != "westwood" || list[5].study != 3 {
		t.Errorf("%d paths: %v", paths, list)
	}
	r := &bench.Report{}
	if e.rankingTable(r); len(r.Tables) != 1 || len(r.Tables[0].Rows) != 6 {
		t.Errorf("%+v", r.Tables)
	}
}
