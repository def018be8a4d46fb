// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"strconv"
	"testing"
)

func TestThin(t *testing.T) {
	var l Line
	for i := range 100_000 {
		l.X, l.Y = append(l.X, float64(i)), append(l.Y, 5)
	}
	l.Y[77_777], l.Y[3] = 9, 1
	points := thin(l)
	low, high := 5.0, 5.0
	for i, p := range points {
		low, high = min(low, p.Y), max(high, p.Y)
		if i > 0 && p.X <= points[i-1].X {
			t.Fatalf("point %d is out of order", i)
		}
	}
	if len(points) > maxPoints+2 || low != 1 || high != 9 {
		t.Errorf("%d points from %v to %v", len(points), low, high)
	}
}

func TestLines(t *testing.T) {
	var lines []Line
	for i := range 25 { // more than colours, and dashes
		lines = append(lines, Line{Name: "curve" + strconv.Itoa(i), X: []float64{0, 1, 2}, Y: []float64{1, 2, float64(i)}})
	}
	lines = append(lines, Line{Name: "nothing"})
	svg, err := Plot{Name: "x", Draw: Lines(Axes{Title: "t", X: "x", Y: "y", Names: []string{"one", "two", "three"}, Points: true}, lines)}.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"curve24", "three"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%s is not drawn", want)
		}
	}
}
