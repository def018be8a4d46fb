// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"strconv"
	"testing"
)

func TestLogBars(t *testing.T) {
	var groups []Group
	for i := range 9 { // more than colours
		groups = append(groups, Group{Name: "codec" + strconv.Itoa(i), Values: []float64{0, 1, 12345}})
	}
	svg, err := Plot{Name: "x", Draw: LogBars(Axes{Title: "t", Y: "y", Names: []string{"one", "two", "three"}}, groups)}.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"codec8", "three", ">100000<"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%s is not drawn", want)
		}
	}
}

func TestScatter(t *testing.T) {
	// One point alone has no extent, and a series may be empty.
	svg, err := Plot{Name: "x", Draw: Scatter(Axes{Title: "t", X: "x", Y: "y"}, []Line{{Name: "point", X: []float64{-5}, Y: []float64{99}}, {Name: "nothing"}})}.svg()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(svg, []byte("point")) {
		t.Error("the point has no name")
	}
}
