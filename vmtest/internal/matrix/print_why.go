// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// outputLines is how much of a failed test's output is printed; the whole of it is in the JSON.
const outputLines = 25

// reasons tells why the red cells of a column are red.
func (p *printer) reasons(c *Column) {
	for _, cell := range c.cells() {
		if !cell.State.red() {
			continue
		}
		title := fmt.Sprintf("%s: %s %s", c.Kernel, cell.Row, cell.alarm())
		fmt.Fprintf(p.out, "\n%s\n", p.paint(red, startOf(ascii(title), tableWidth)))
		for _, r := range cell.Reasons {
			p.reason(r)
		}
	}
}

func (p *printer) reason(r Reason) {
	p.item(r.Text)
	for _, line := range lastLines(r.Output) {
		for _, piece := range hardWrapped(ascii(line), tableWidth-8) {
			fmt.Fprintln(p.out, strings.TrimRight("        "+piece, " "))
		}
	}
	if r.Remedy != "" {
		p.item("remedy: " + r.Remedy)
	}
	if r.Log != "" {
		fmt.Fprintf(p.out, "    kernel log: %s\n", r.Log) // a path is not broken into lines, so that it can be copied
	}
}

func (p *printer) item(s string) {
	if s == "" {
		s = "no reason was given"
	}
	fmt.Fprintln(p.out, "    "+p.wrapped(s, 6))
}

// lastLines chooses what is worth reading of an output: from a panic on, since what follows is only stacks, else the end.
func lastLines(output string) []string {
	output = strings.TrimRight(output, "\n")
	if output == "" {
		return nil
	}
	lines := strings.Split(output, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "SIG") {
			return lines[i:min(i+outputLines, len(lines))]
		}
	}
	if cut := len(lines) - outputLines; cut > 0 {
		return append([]string{fmt.Sprintf("... %d lines before ...", cut)}, lines[cut:]...)
	}
	return lines
}

// wrapped breaks a text into lines at its spaces; all but the first are indented, and the first has as much room.
func (p *printer) wrapped(s string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(ascii(s)) {
		for j, piece := range hardWrapped(word, tableWidth-indent) {
			switch {
			case i == 0 && j == 0:
			case column+1+len(piece) > tableWidth:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(piece)
			column += len(piece)
		}
	}
	return b.String()
}

// hardWrapped cuts a text into pieces of a width; an empty one is a piece too.
func hardWrapped(s string, width int) []string {
	var pieces []string
	for len(s) > width {
		pieces = append(pieces, s[:width])
		s = s[width:]
	}
	return append(pieces, s)
}

// colours are what programs put around their words.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// ascii makes a text safe for every terminal: what a guest prints may hold anything.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == '\u00b5' || r == '\u03bc': // micro, as in durations
			return 'u'
		case r > unicode.MaxASCII:
			return '?'
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, colours.ReplaceAllString(s, ""))
}

func pad(s string, width int) string { return s + strings.Repeat(" ", max(width-len(s), 0)) }

// startOf cuts a text at its end, endOf at its beginning.
func startOf(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return s[:width-3] + "..."
}

func endOf(s string, width int) string {
	if len(s) <= width {
		return s
	}
	return "..." + s[len(s)-width+3:]
}
