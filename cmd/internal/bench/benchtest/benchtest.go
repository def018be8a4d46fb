// SPDX-License-Identifier: Apache-2.0

// Package benchtest checks what every bench owes its readers.
package benchtest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// pageWidth is what tables must fit into, in columns.
const pageWidth = 100

// units are what the name of a figure may end with; counts and shares, which have no dimension, have names of their own,
// to which a bench adds what it needs.
var (
	units = regexp.MustCompile(`_(s|ms|us|ns|B|MB|GB|bytes|Mbps|MBps|per_s|per_GB|per_connect|per_packet|per_run)(_q1|_q3)?$`)
	plain = regexp.MustCompile(`^(relative_\w+|runs|program_runs|connects|failed|steered|parallel|streams|loss|run|seed|flows|burst|` +
		`ratio|least_ratio|level|files|blocks|records|queue_bdp|queue_drops|lost|(beside_)?retransmits|rtos|discarded|mtu|jain|jain_between|seconds|bytes)(_q1|_q3)?$`)
)

// CheckRows fails unless every row is a flat object whose figures have their unit in the name.
func CheckRows(t *testing.T, rows []any) {
	t.Helper()
	if len(rows) == 0 {
		t.Error("there are no rows")
	}
	for _, row := range rows {
		text, err := json.Marshal(row)
		var fields map[string]any
		if err == nil {
			err = json.Unmarshal(text, &fields)
		}
		if err != nil {
			t.Errorf("row %s: %v", text, err)
			continue
		}
		for name, value := range fields {
			switch value.(type) {
			case string, bool, nil: // nothing came of it in this run
			case float64:
				if !units.MatchString(name) && !plain.MatchString(name) {
					t.Errorf("the figure %s has no unit in its name, in %s", name, text)
				}
			default:
				t.Errorf("the field %s is not flat, in %s", name, text)
			}
		}
	}
}

// CheckTables fails if a line is wider than the page, or a row has another number of cells than the header.
func CheckTables(t *testing.T, tables []bench.Table) {
	t.Helper()
	for _, table := range tables {
		for _, row := range table.Rows {
			if len(row) != len(table.Header) {
				t.Errorf("%q: %d cells under %d headers: %v", table.Title, len(row), len(table.Header), row)
			}
		}
		var b strings.Builder
		table.Write(&b)
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > pageWidth {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}
