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

// shapes tell points apart, beside their colours.
var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

// Scatter draws points without lines, a colour and shape for each name, with a legend at their right. The axes begin where
// the points do.
func Scatter(axes Axes, series []Line) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = axes.Title, axes.X, axes.Y
		p.Title.Padding = vg.Points(8)
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xdd}, color.Gray{0xdd}
		p.Add(grid)
		for i, s := range series {
			points := thin(s)
			if len(points) == 0 {
				continue
			}
			dots, err := plotter.NewScatter(points)
			if err != nil {
				return fmt.Errorf("drawing %s: %w", s.Name, err)
			}
			// The numbers of colours and shapes have no common factor, so that pairs do not come again soon.
			dots.Color, dots.Shape, dots.Radius = colours[i%len(colours)], shapes[i%len(shapes)], vg.Points(3)
			p.Add(dots)
			p.Legend.Add(s.Name, dots)
		}
		width, height := p.X.Max-p.X.Min, p.Y.Max-p.Y.Min
		p.X.Min, p.X.Max = p.X.Min-0.04*width, p.X.Max+max(0.5*width, 1e-9) // room for the legend
		p.Y.Min, p.Y.Max = p.Y.Min-0.04*height, p.Y.Max+max(0.04*height, 1e-9)
		smallLegend(p)
		return nil
	}
}

func smallLegend(p *plot.Plot) {
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = vg.Points(7)
	p.Legend.Padding = vg.Points(1)
	p.Legend.ThumbnailWidth = vg.Points(10)
}
