// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// row is one row of the JSON: a kind of traffic over a link, by one way.
type row struct {
	Part   string  `json:"part"` // repeat, new-noise, new-text
	Link   string  `json:"link"`
	Way    string  `json:"way"`
	Runs   int     `json:"runs"`
	Bytes  int     `json:"fetch_bytes"`
	Median float64 `json:"goodput_Mbps"`
	Q1     float64 `json:"goodput_Mbps_q1"`
	Q3     float64 `json:"goodput_Mbps_q3"`
	Plain  float64 `json:"relative_to_plain"` // goodput relative to the pair of plain relays
}

// exchangeRow is the same for exchanges.
type exchangeRow struct {
	Part   string  `json:"part"` // exchange
	Link   string  `json:"link"`
	Way    string  `json:"way"`
	Runs   int     `json:"runs"`
	Bytes  int     `json:"exchange_bytes"`
	Median float64 `json:"exchange_us"`
	Q1     float64 `json:"exchange_us_q1"`
	Q3     float64 `json:"exchange_us_q3"`
	Above  float64 `json:"above_plain_us"`
}

func (r *relay) report() *bench.Report {
	report := &bench.Report{}
	t := bench.Table{
		Title: "Goodput in Mbit/s, and microseconds an exchange of 100 bytes there and back: medians of the runs, and their quartiles",
		Words: 3, Header: []string{"TRAFFIC", "LINK", "WAY", "MEDIAN", "Q1", "Q3", "BESIDE PLAIN"},
		Notes: []string{"Beside plain: goodput in relation to that of the pair of plain relays; of exchanges, what they take longer."},
	}
	for _, k := range kinds {
		for _, link := range links {
			plain := bench.Of(r.runs[cell{link.name, k.name, wayPlain}]).Median
			for _, way := range ways {
				runs := r.runs[cell{link.name, k.name, way}]
				s, beside := bench.Of(runs).Digits(4), ""
				if k.data == kindEcho {
					above := bench.Significant(s.Median-plain, 3)
					report.Rows = append(report.Rows, exchangeRow{k.name, link.name, way, len(runs), exchangeBytes, s.Median, s.Q1, s.Q3, above})
					beside = fmt.Sprintf("%+.0f us", above)
				} else {
					share := bench.Significant(s.Median/plain, 3)
					report.Rows = append(report.Rows, row{k.name, link.name, way, len(runs), r.mebibytes << 20, s.Median, s.Q1, s.Q3, share})
					beside = fmt.Sprintf("%.2f", share)
				}
				t.Add(k.name, link.name, way, bench.Figure(s.Median), bench.Figure(s.Q1), bench.Figure(s.Q3), beside)
			}
		}
	}
	report.Tables = []bench.Table{t}
	return report
}
