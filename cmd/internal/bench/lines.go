// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Line is one curve of a drawing.
type Line struct {
	Name string
	X, Y []float64 // as many
}

// Axes say what a drawing of curves is about. Y begins at 0.
type Axes struct {
	Title, X, Y string
	Names       []string // of the places 0, 1, 2, ... on X, where it has no scale; nil: it has
	Points      bool     // the curves' points are marked: they are measured, what is between them is not
}

// maxPoints of a curve are drawn: a page cannot show more, and a file with all samples of a long run is large.
const maxPoints = 2000

// colours tell curves apart, also for those who do not see red or green; with more curves than colours they come again, dashed.
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x44, 0x44, 0x44, 0xff},
}

var dashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(1.5)}}

// Lines draws curves with a legend at their right.
func Lines(axes Axes, lines []Line) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = axes.Title, axes.X, axes.Y
		p.Title.Padding = vg.Points(8)
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xdd}, color.Gray{0xdd}
		p.Add(grid)
		least, most, top := 0.0, 0.0, 0.0
		for i, l := range lines {
			points := thin(l)
			if len(points) == 0 {
				continue
			}
			if err := addLine(p, l.Name, points, i, axes.Points); err != nil {
				return err
			}
			for _, pt := range points {
				least, most, top = min(least, pt.X), max(most, pt.X), max(top, pt.Y)
			}
		}
		p.Y.Min, p.Y.Max = 0, max(1.05*top, 1e-9)
		p.X.Min, p.X.Max = least, max(least+1.3*(most-least), least+1e-9) // room for the legend
		p.Legend.Top = true
		p.Legend.TextStyle.Font.Size = vg.Points(8)
		p.Legend.Padding = vg.Points(2)
		p.Legend.ThumbnailWidth = vg.Points(18)
		if axes.Names != nil {
			p.X.Tick.Marker = namedTicks(axes.Names)
		}
		return nil
	}
}

func addLine(p *plot.Plot, name string, points plotter.XYs, i int, marks bool) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("drawing %s: %w", name, err)
	}
	line.Color, line.Width = colours[i%len(colours)], vg.Points(1.2)
	line.Dashes = dashes[i/len(colours)%len(dashes)]
	p.Add(line)
	if marks {
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("drawing %s: %w", name, err)
		}
		dots.Color, dots.Radius, dots.Shape = line.Color, vg.Points(2), draw.CircleGlyph{}
		p.Add(dots)
	}
	p.Legend.Add(name, line)
	return nil
}

// thin leaves of a long curve the lowest and the highest point of each stretch.
func thin(l Line) plotter.XYs {
	at := func(i int) plotter.XY { return plotter.XY{X: l.X[i], Y: l.Y[i]} }
	var points plotter.XYs
	if len(l.X) <= maxPoints {
		for i := range l.X {
			points = append(points, at(i))
		}
		return points
	}
	stretch := 2 * (len(l.X) + maxPoints - 1) / maxPoints
	for from := 0; from < len(l.X); from += stretch {
		low, high := from, from
		for i := from; i < min(from+stretch, len(l.X)); i++ {
			if l.Y[i] < l.Y[low] {
				low = i
			}
			if l.Y[i] > l.Y[high] {
				high = i
			}
		}
		points = append(points, at(min(low, high)))
		if low != high {
			points = append(points, at(max(low, high)))
		}
	}
	return points
}

// namedTicks puts names at whole numbers.
type namedTicks []string

// Ticks is of plot.Ticker.
func (n namedTicks) Ticks(_, _ float64) []plot.Tick {
	ticks := make([]plot.Tick, len(n))
	for i, name := range n {
		ticks[i] = plot.Tick{Value: float64(i), Label: name}
	}
	return ticks
}
