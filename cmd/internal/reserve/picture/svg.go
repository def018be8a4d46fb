// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// The layout, in pixels.
const (
	svgWidth    = 960
	svgLeft     = 90
	svgRight    = 20
	svgTop      = 40
	panelHeight = 120
	panelGap    = 46
	ticks       = 6
)

// fills are the colours of states.
var fills = map[reserve.State]string{reserve.Pending: "#a6c8e8", reserve.Active: "#2a78b8", reserve.Suspended: "#e0a030", reserve.Ended: "#cccccc"}

// SVG draws a panel for each path: its height is the capacity, and each reservation a box as wide as its time and as high as its
// rate, above those that it meets.
func (p Picture) SVG(w io.Writer) error {
	var b bytes.Buffer
	height := svgTop + max(len(p.Paths), 1)*(panelHeight+panelGap) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, height, svgWidth, height)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", svgWidth, height)
	label(&b, svgLeft, 20, `font-size="15"`, fmt.Sprintf("Reserved paths, %s to %s", p.time(p.From), p.time(p.To)))
	if len(p.Paths) == 0 {
		label(&b, svgLeft, svgTop+20, "", "no path is declared and nothing is reserved in this time")
	}
	for i, path := range p.Paths {
		p.panel(&b, path, svgTop+i*(panelHeight+panelGap)+18)
	}
	p.legend(&b, height-12)
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (p Picture) panel(b *bytes.Buffer, path Path, top int) {
	name := path.Name + " (capacity not declared)"
	if path.CapacityBps > 0 {
		name = path.Name
	}
	full := path.scale()
	label(b, svgLeft, top-5, `font-weight="bold"`, name)
	label(b, svgLeft-6, top+10, `text-anchor="end"`, units.FormatRate(float64(full)*8))
	label(b, svgLeft-6, top+panelHeight, `text-anchor="end"`, "0")
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f6f6f6\" stroke=\"#888\"/>\n", svgLeft, top, svgWidth-svgLeft-svgRight, panelHeight)
	for i, offset := range path.stacked() {
		r := path.On[i]
		left, right := p.x(r.Start), p.x(until(r))
		high := panelHeight * float64(r.RateBps) / float64(full)
		y := float64(top+panelHeight) - panelHeight*float64(offset)/float64(full) - high
		text := fmt.Sprintf("%s %s %s", r.ID, r.Owner, units.FormatRate(float64(r.RateBps)*8))
		fmt.Fprintf(b, "<g><title>%s</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\"/>",
			escaped(fmt.Sprintf("%s, %s, %s to %s", text, r.State, p.time(r.Start), p.time(until(r)))), left, y, max(right-left, 1), max(high, 1), fills[r.State])
		if high >= 14 && right-left >= 7*float64(len(text)) {
			label(b, int(left)+4, int(y)+13, `fill="#111"`, text)
		}
		b.WriteString("</g>\n")
	}
	p.times(b, top)
}

func (p Picture) times(b *bytes.Buffer, top int) {
	form := "15:04"
	if p.To.Sub(p.From) > 36*time.Hour {
		form = "01-02 15:04"
	}
	for i := range ticks + 1 {
		at := p.From.Add(p.To.Sub(p.From) * time.Duration(i) / ticks)
		anchor := "middle"
		if i == ticks {
			anchor = "end"
		}
		label(b, int(p.x(at)), top+panelHeight+14, fmt.Sprintf(`text-anchor="%s" fill="#555"`, anchor), at.In(p.Zone).Format(form))
	}
	if !p.Now.Before(p.From) && p.Now.Before(p.To) {
		x := p.x(p.Now)
		fmt.Fprintf(b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#c00\"/>\n", x, top, x, top+panelHeight)
	}
}

// x is the place of a time, at the edge if it lies outside.
func (p Picture) x(t time.Time) float64 {
	share := float64(t.Sub(p.From)) / float64(p.To.Sub(p.From))
	return svgLeft + min(max(share, 0), 1)*(svgWidth-svgLeft-svgRight)
}

func (p Picture) legend(b *bytes.Buffer, y int) {
	x := svgLeft
	for _, s := range []reserve.State{reserve.Active, reserve.Suspended, reserve.Pending, reserve.Ended} {
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y-11, fills[s])
		label(b, x+18, y, "", string(s))
		x += 110
	}
	label(b, x, y, `fill="#c00"`, "| now")
}

func label(b *bytes.Buffer, x, y int, attributes, text string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" %s>%s</text>\n", x, y, attributes, escaped(text))
}

func escaped(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}
