// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pageWidth is what tables fit into, in columns.
const pageWidth = 100

// Table is one table of a report: words at the left, figures aligned at their right ends.
type Table struct {
	Title  string
	Header []string
	Words  int // so many first columns are words; the others are figures
	Rows   [][]string
	Notes  []string // below the table, wrapped
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write prints the table.
func (t *Table) Write(w io.Writer) {
	widths := make([]int, len(t.Header))
	all := append([][]string{t.Header}, t.Rows...)
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	writeWrapped(w, t.Title, "")
	fmt.Fprintln(w)
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i > 0 {
				line.WriteString("  ")
			}
			if i < t.Words {
				line.WriteString(c + pad)
			} else {
				line.WriteString(pad + c)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
	for _, n := range t.Notes {
		writeWrapped(w, n, "  ")
	}
}

// WriteText writes a text, broken at words to fit the page.
func WriteText(w io.Writer, text string) { writeWrapped(w, text, "") }

// writeWrapped breaks a text at words; further lines are indented.
func writeWrapped(w io.Writer, text, indent string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > pageWidth:
			fmt.Fprintln(w, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(w, line)
}

// Figure writes three significant digits, and whole numbers from a hundred on.
func Figure(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v == 0:
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
