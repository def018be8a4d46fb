// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

const (
	labelWidth = 30
	barWidth   = 68 // with the label and its space within 100 columns
)

// bars are the marks of states.
var bars = map[reserve.State]rune{reserve.Pending: '░', reserve.Active: '█', reserve.Suspended: '▒', reserve.Ended: '·'}

// levels fill a cell by eighths.
var levels = []rune(" ▁▂▃▄▅▆▇█")

// Text draws with a line for each reservation, and above them how full the path is.
func (p Picture) Text(w io.Writer) {
	fmt.Fprintf(w, "%s%s\n", strings.Repeat(" ", labelWidth+1), p.axis())
	for _, path := range p.Paths {
		name := path.Name + ", capacity not declared"
		if path.CapacityBps > 0 {
			name = path.Name + " " + units.FormatRate(float64(path.CapacityBps)*8)
		}
		p.line(w, name, path.load(p))
		for _, r := range path.On {
			p.line(w, fmt.Sprintf("  %s %s %s", r.ID, r.Owner, units.FormatRate(float64(r.RateBps)*8)), p.bar(r))
		}
	}
	if len(p.Paths) == 0 {
		fmt.Fprintln(w, "no path is declared and nothing is reserved in this time")
	}
	fmt.Fprintf(w, "%sfrom %s to %s; │ is now\n", strings.Repeat(" ", labelWidth+1), p.time(p.From), p.time(p.To))
	fmt.Fprintf(w, "%s█ in force  ▒ suspended  ░ to come  · ended; beside a path: its load\n", strings.Repeat(" ", labelWidth+1))
}

func (p Picture) time(t time.Time) string { return t.In(p.Zone).Format("2006-01-02 15:04 MST") }

// line writes a label, and the cells with a mark for now where they are empty.
func (p Picture) line(w io.Writer, label string, cells []rune) {
	if now := p.cell(p.Now); now >= 0 && now < barWidth && (cells[now] == ' ' || cells[now] == '·') {
		cells[now] = '│'
	}
	r := []rune(label)
	if len(r) > labelWidth {
		r = append(r[:labelWidth-1], '…')
	}
	fmt.Fprintln(w, strings.TrimRight(string(r)+strings.Repeat(" ", labelWidth+1-len(r))+string(cells), " "))
}

// cell is the column of a time, which may lie outside.
func (p Picture) cell(t time.Time) int {
	return int(float64(barWidth) * float64(t.Sub(p.From)) / float64(p.To.Sub(p.From)))
}

func (p Picture) start(cell int) time.Time {
	return p.From.Add(p.To.Sub(p.From) * time.Duration(cell) / barWidth)
}

func (p Picture) bar(r reserve.Reservation) []rune {
	cells := []rune(strings.Repeat(" ", barWidth))
	from := min(max(p.cell(r.Start), 0), barWidth-1)
	to := max(min(p.cell(until(r)), barWidth), from+1) // even a short one is seen
	for i := from; i < to; i++ {
		cells[i] = bars[r.State]
	}
	return cells
}

func (path Path) load(p Picture) []rune {
	cells := make([]rune, barWidth)
	top := path.scale()
	for i := range cells {
		share := float64(path.reservedIn(p.start(i), p.start(i+1))) / float64(top)
		level := int(share*8 + 0.5)
		if level == 0 && share > 0 {
			level = 1
		}
		cells[i] = levels[min(level, 8)]
	}
	return cells
}

// axis names times above the cells where they begin.
func (p Picture) axis() string {
	form := "15:04"
	if p.To.Sub(p.From) > 36*time.Hour {
		form = "01-02 15h"
	}
	var b strings.Builder
	for cell := 0; cell < barWidth; cell += barWidth / 4 {
		text := "╷" + p.start(cell).In(p.Zone).Format(form)
		b.WriteString(text + strings.Repeat(" ", max(barWidth/4-utf8.RuneCountInString(text), 0)))
	}
	return strings.TrimRight(b.String(), " ")
}
