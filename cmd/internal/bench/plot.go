// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot is a drawing that --out writes as NAME.svg.
type Plot struct {
	Name string
	Draw func(*plot.Plot) error
}

// Size of a plot on a page.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
)

func (p Plot) svg() ([]byte, error) {
	drawing := plot.New()
	if err := p.Draw(drawing); err != nil {
		return nil, err
	}
	canvas := vgsvg.New(plotWidth, plotHeight)
	drawing.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("writing SVG: %w", err)
	}
	return b.Bytes(), nil
}

var barColour = color.RGBA{R: 0x3b, G: 0x6e, B: 0xa8, A: 0xff}

// Bars draws one bar for each name with its median as the height and its quartiles as whiskers.
func Bars(title, unit string, names []string, values []Spread) func(*plot.Plot) error {
	return func(p *plot.Plot) error {
		p.Title.Text, p.Y.Label.Text = title, unit
		p.Title.Padding = vg.Points(8)
		p.Y.Min, p.Y.Max = 0, 0
		p.X.Min, p.X.Max = -0.5, float64(len(values))-0.3 // room for the last figure
		heights := make(plotter.Values, len(values))
		points := make(plotter.XYs, len(values))
		whiskers := make(plotter.YErrors, len(values))
		for i, v := range values {
			heights[i] = v.Median
			points[i] = plotter.XY{X: float64(i), Y: v.Median}
			whiskers[i].Low, whiskers[i].High = v.Median-v.Q1, v.Q3-v.Median
			p.Y.Max = max(p.Y.Max, 1.1*v.Q3)
		}
		bars, err := plotter.NewBarChart(heights, vg.Points(36))
		if err != nil {
			return fmt.Errorf("drawing bars: %w", err)
		}
		bars.Color, bars.LineStyle.Width = barColour, 0
		errs, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{points, whiskers})
		if err != nil {
			return fmt.Errorf("drawing whiskers: %w", err)
		}
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: points, Labels: figures(values)})
		if err != nil {
			return fmt.Errorf("drawing figures: %w", err)
		}
		labels.Offset = vg.Point{X: vg.Points(4), Y: vg.Points(4)}
		grid := plotter.NewGrid()
		grid.Vertical.Width = 0
		p.Add(grid, bars, errs, labels)
		p.NominalX(names...)
		return nil
	}
}

func figures(values []Spread) []string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = Figure(v.Median)
	}
	return s
}
