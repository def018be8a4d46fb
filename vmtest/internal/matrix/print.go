// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// The widths of what is printed, in characters.
const (
	tableWidth = 100
	labelWidth = 28 // at most, of a row's name
	cellWidth  = 20 // at most, of a column
	columnGap  = 2
)

// Print writes the table, one column a kernel, at most 100 characters wide, and below it why red cells are red. Kernels that do
// not fit beside each other are put into a second table. All that is written is ASCII, whatever tests have printed.
func (m *Matrix) Print(w io.Writer, colour bool) {
	out := bufio.NewWriter(w)
	defer out.Flush()
	p := printer{out: out, colour: colour, skipped: " +%d skipped"}
	gs := groups(m.Columns, m.expect)
	if p.fitting(gs, m.Columns) < len(m.Columns) {
		p.skipped = " +%d"
	}
	for rest := m.Columns; len(rest) > 0; {
		n := p.fitting(gs, rest)
		p.table(gs, rest[:n])
		rest = rest[n:]
	}
	if p.skipped == " +%d" {
		fmt.Fprintln(out, "tests: N passed, or N +M where M more were skipped for features that are off")
	}
	for i := range m.Columns {
		p.about(&m.Columns[i])
	}
	for i := range m.Columns {
		p.reasons(&m.Columns[i])
	}
	switch red := m.Red(); {
	case len(m.Columns) == 0:
		fmt.Fprintln(out, "no kernel was run")
	case len(red) == 0:
		fmt.Fprintf(out, "no failing cell on %s\n", count(len(m.Columns), "kernel"))
	default:
		fmt.Fprintln(out, "\n"+p.wrapped(count(len(red), "failing cell")+": "+strings.Join(red, "; "), 4))
	}
}

type printer struct {
	out     *bufio.Writer
	colour  bool
	skipped string // how skipped tests are told behind those that passed; short where there are many kernels
}

// fitting is how many columns fit beside each other, at least one.
func (p *printer) fitting(gs []group, columns []Column) int {
	width := labelOf(gs)
	for i := range columns {
		width += columnGap + p.widthOf(gs, &columns[i])
		if width > tableWidth && i > 0 {
			return i
		}
	}
	return len(columns)
}

func labelOf(gs []group) int {
	width := len(judgedRow)
	for _, g := range gs {
		for _, row := range g.rows {
			width = max(width, len(row)+1) // a space before it
		}
	}
	return min(width, labelWidth)
}

func (p *printer) widthOf(gs []group, c *Column) int {
	width := max(len(c.Kernel), len(c.Judged))
	for _, g := range gs {
		for _, row := range g.rows {
			width = max(width, len(g.text(c, row, p.skipped)))
		}
	}
	return min(width, cellWidth)
}

// judgedRow is the row that says how a kernel is judged.
const judgedRow = "expectation"

func (p *printer) table(gs []group, columns []Column) {
	label := labelOf(gs)
	line := func(name string, f func(*Column) (text, colour string)) {
		var b strings.Builder
		b.WriteString(pad(name, label))
		for i := range columns {
			s, colour := f(&columns[i])
			s = pad(startOf(s, cellWidth), p.widthOf(gs, &columns[i]))
			b.WriteString(strings.Repeat(" ", columnGap) + p.paint(colour, s))
		}
		fmt.Fprintln(p.out, strings.TrimRight(b.String(), " "))
	}
	line("", func(c *Column) (string, string) { return ascii(c.Kernel), bold })
	line(judgedRow, func(c *Column) (string, string) { return c.Judged, "" })
	for _, g := range gs {
		fmt.Fprintln(p.out, g.title)
		for _, row := range g.rows {
			line(" "+endOf(ascii(row), label-1), func(c *Column) (string, string) {
				cell, _ := cellOf(g.cells(c), row)
				return g.text(c, row, p.skipped), colourOf(cell.State)
			})
		}
	}
	fmt.Fprintln(p.out)
}

// text is what a row shows for a kernel.
func (g group) text(c *Column, row, skipped string) string {
	cell, ok := cellOf(g.cells(c), row)
	switch {
	case !ok:
		return "-"
	case cell.State.red():
		return cell.alarm()
	case cell.State == Unknown:
		return "?"
	case cell.State == Off:
		return "off"
	case cell.Passed+cell.Skipped > 0:
		return tests(cell, skipped)
	}
	return g.good
}

// alarm is what a red cell shows: capitals, for those who see no colours.
func (c Cell) alarm() string {
	if c.Failed > 0 {
		return fmt.Sprintf("%d FAILED", c.Failed)
	}
	return strings.ToUpper(string(c.State))
}

// tests tells how many passed, and how many were skipped if any were.
func tests(c Cell, skipped string) string {
	if c.Skipped == 0 {
		return fmt.Sprint(c.Passed)
	}
	return fmt.Sprintf("%d"+skipped, c.Passed, c.Skipped)
}

// about tells what a column's heading has no room for.
func (p *printer) about(c *Column) {
	s := c.Kernel + ": "
	if c.Release == "" {
		s += "release not known"
	} else {
		s += "Linux " + c.Release
	}
	switch {
	case c.Judged == AsNewest:
		s += ", judged as the newest"
	case c.Judged == Unlisted && c.By == "":
		s += ", older than all kernels in vmtest/expect.yaml: no feature is expected of it"
	case c.Judged == Unlisted:
		s += ", not listed in vmtest/expect.yaml: judged by " + c.By + " for trunkline's own features alone"
	}
	fmt.Fprintln(p.out, p.wrapped(s, 4))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// What terminals take for colours.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[1;31m"
	green = "\x1b[32m"
	grey  = "\x1b[90m"
	reset = "\x1b[0m"
)

func colourOf(s State) string {
	switch {
	case s.red():
		return red
	case s == OK:
		return green
	}
	return grey
}

func (p *printer) paint(colour, s string) string {
	if !p.colour || colour == "" {
		return s
	}
	return colour + s + reset
}
