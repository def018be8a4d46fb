// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// pageWidth is what every table fits into.
const pageWidth = 100

// table prints aligned columns. The last column takes what is left of the page and is wrapped at words; a row may carry
// notes, which follow on lines of their own.
type table struct {
	header []string
	limit  []int // the most characters of each column, 0: no limit; longer cells are clipped
	rows   []row
}

type row struct {
	cells []string
	notes []string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, row{cells: cells}) }

// note adds a line below the latest row.
func (t *table) note(text string) {
	r := &t.rows[len(t.rows)-1]
	r.notes = append(r.notes, text)
}

func (t *table) print(w io.Writer) {
	widths := make([]int, len(t.header))
	all := append([]row{{cells: t.header}}, t.rows...)
	for _, r := range all {
		for i, c := range r.cells {
			if i < len(t.limit) && t.limit[i] > 0 {
				r.cells[i] = clip(c, t.limit[i])
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	indent := 0
	for _, width := range widths[:len(widths)-1] {
		indent += width + 2
	}
	for _, r := range all {
		var line strings.Builder
		for i, c := range r.cells[:len(r.cells)-1] {
			line.WriteString(c + strings.Repeat(" ", widths[i]+2-utf8.RuneCountInString(c)))
		}
		last := wrap(r.cells[len(r.cells)-1], max(pageWidth-indent, 20))
		line.WriteString(strings.Join(last, "\n"+strings.Repeat(" ", indent)))
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
		for _, n := range r.notes {
			fmt.Fprintln(w, "  "+strings.Join(wrap(n, pageWidth-2), "\n    "))
		}
	}
}

// clip shortens in the middle: both ends of an address or a name tell more than its middle.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
