// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"strings"
)

// generated is the text between the marks: the table, and what lifts the limitations that it shows.
func generated(columns []Column, e *Expect) string {
	if len(columns) == 0 {
		return "No kernel has been run yet.\n"
	}
	var b strings.Builder
	matrixTable(&b, columns, e)
	b.WriteString("\n## What lifts a limitation\n\n")
	limitTable(&b, columns)
	return b.String()
}

func matrixTable(b *strings.Builder, columns []Column, e *Expect) {
	header, rule, release := []string{""}, []string{"---"}, []string{"release"}
	for _, c := range columns {
		header = append(header, c.Kernel)
		rule = append(rule, "---")
		release = append(release, c.Release)
	}
	writeRow(b, header)
	writeRow(b, rule)
	writeRow(b, release)
	for _, g := range groups(columns, e) {
		title := make([]string, len(columns)+1)
		title[0] = "**" + g.title + "**"
		writeRow(b, title)
		for _, row := range g.rows {
			cells := []string{"`" + row + "`"}
			for i := range columns {
				cells = append(cells, documented(g, &columns[i], row))
			}
			writeRow(b, cells)
		}
	}
}

// documented is the text of a cell; no cell in the document is red.
func documented(g group, c *Column, row string) string {
	cell, ok := cellOf(g.cells(c), row)
	switch {
	case !ok || cell.State == Unknown:
		return "-"
	case cell.State == Off:
		return "off"
	case cell.Passed+cell.Skipped > 0:
		return tests(cell, ", %d skipped")
	}
	return g.good
}

// limitTable lists what is off somewhere in the table, and what no feature stands for.
func limitTable(b *strings.Builder, columns []Column) {
	writeRow(b, []string{"limitation", "seen on", "lifted by"})
	writeRow(b, []string{"---", "---", "---"})
	for _, f := range features {
		var on []string
		for _, c := range columns {
			if cell, _ := cellOf(c.Features, f.name); cell.State == Off {
				on = append(on, c.Kernel)
			}
		}
		if len(on) > 0 {
			writeRow(b, []string{fmt.Sprintf("no `%s`: %s", f.name, f.without), strings.Join(on, ", "), f.liftedBy})
		}
	}
	for _, l := range limits {
		if on := l.on(columns); on != "" {
			writeRow(b, []string{l.what, on, l.liftedBy})
		}
	}
}

// on names the kernels that have a limit.
func (l limit) on(columns []Column) string {
	if l.before == "" {
		return l.where
	}
	var names []string
	for _, c := range columns {
		if versionIn(c.Kernel, c.Release).compare(parsed(l.before)) < 0 {
			names = append(names, c.Kernel)
		}
	}
	return strings.Join(names, ", ")
}

func writeRow(b *strings.Builder, cells []string) {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
