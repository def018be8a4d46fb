// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Group is a series of bars, one at each name of the X axis.
type Group struct {
	Name   string
	Values []float64 // one at least
}

// legendShare is the part of the width that the legend takes.
const legendShare = 0.17

// LogBars draws bars side by side at each of the axes' names, on a logarithmic scale that begins at 1, with a legend at their right.
func LogBars(axes Axes, groups []Group) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.Title.Text, p.Y.Label.Text = axes.Title, axes.Y
		p.Title.Padding = vg.Points(8)
		grid := plotter.NewGrid()
		grid.Vertical.Width, grid.Horizontal.Color = 0, color.Gray{0xdd}
		p.Add(grid)
		// Bars begin at 0, which has no logarithm: so heights are logarithms, and the ticks say of what.
		width := 0.8 * 0.88 * (1 - legendShare) * plotWidth / vg.Length(max(len(groups)*len(axes.Names), 1))
		top := 0.0
		for i, g := range groups {
			heights := make(plotter.Values, len(g.Values))
			for j, v := range g.Values {
				heights[j] = math.Log10(max(v, 1))
				top = max(top, heights[j])
			}
			bars, err := plotter.NewBarChart(heights, width)
			if err != nil {
				return fmt.Errorf("drawing %s: %w", g.Name, err)
			}
			bars.Color, bars.LineStyle.Width = shade(i), 0
			bars.Offset = width * vg.Length(float64(i)-float64(len(groups)-1)/2)
			p.Add(bars)
			p.Legend.Add(g.Name, bars)
		}
		p.NominalX(axes.Names...)
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/4, -1, -0.5
		p.X.Tick.Label.Font.Size = vg.Points(8)
		p.X.Min, p.X.Max = -0.5, float64(len(axes.Names))/(1-legendShare)-0.5
		p.Y.Min, p.Y.Max = 0, max(math.Ceil(top), 1)
		p.Y.Tick.Marker = decades(math.Ceil(top))
		smallLegend(p)
		return nil
	}
}

// shade is a colour of its own for each bar of a group; where colours come again they are lighter.
func shade(i int) color.RGBA {
	c := colours[i%len(colours)]
	for range i / len(colours) {
		c.R, c.G, c.B = c.R/2+0x7f, c.G/2+0x7f, c.B/2+0x7f
	}
	return c
}

// decades puts 1, 10, 100, ... at 0, 1, 2, ...
type decades int

// Ticks is of plot.Ticker.
func (d decades) Ticks(_, _ float64) []plot.Tick {
	var ticks []plot.Tick
	for i := range int(d) + 1 {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: strconv.FormatFloat(math.Pow10(i), 'f', -1, 64)})
		for _, v := range []float64{2, 3, 4, 5, 6, 7, 8, 9} {
			if i < int(d) {
				ticks = append(ticks, plot.Tick{Value: float64(i) + math.Log10(v)})
			}
		}
	}
	return ticks
}
