// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"strings"
)

// page is some of the paths as the columns of a table: they differ in one thing only, which heads the columns.
type page struct {
	title string // what they have in common
	what  string // delay, loss or rate
	cells []cell
	heads []string
}

// pageCells is how many paths fit beside each other.
const pageCells = 7

// dimension is one of the things in which paths differ.
type dimension struct {
	name string
	text func(*cell) string
}

var dimensions = []dimension{
	{"delay", (*cell).delayText},
	{"loss", func(c *cell) string { return "loss " + c.lossText() }},
	{"rate", (*cell).rateText},
}

// values are those of a dimension, in their order.
func (d *dimension) values(cells []cell) (values []string) {
	seen := map[string]bool{}
	for i := range cells {
		if v := d.text(&cells[i]); !seen[v] {
			seen[v] = true
			values = append(values, v)
		}
	}
	return values
}

// pages lays paths out along the dimension that has the most values.
func pages(cells []cell) []page {
	along := &dimensions[0]
	for i := range dimensions {
		if len(dimensions[i].values(cells)) > len(along.values(cells)) {
			along = &dimensions[i]
		}
	}
	return pagesAlong(cells, along)
}

func pagesAlong(cells []cell, along *dimension) (list []page) {
	open := map[string]int{} // title to the page that is being filled
	for i := range cells {
		c := &cells[i]
		title := titleWithout(c, along)
		n, ok := open[title]
		if !ok || len(list[n].cells) == pageCells {
			n = len(list)
			open[title] = n
			list = append(list, page{title: title, what: along.name})
		}
		list[n].cells = append(list[n].cells, *c)
		list[n].heads = append(list[n].heads, strings.TrimPrefix(along.text(c), "loss "))
	}
	return list
}

func titleWithout(c *cell, along *dimension) string {
	var parts []string
	for _, d := range []string{"rate", "delay", "loss"} {
		for i := range dimensions {
			if dimensions[i].name == d && d != along.name {
				parts = append(parts, dimensions[i].text(c))
			}
		}
	}
	return strings.Join(parts, ", ")
}

func (p *page) String() string { return fmt.Sprintf("%s, by %s", p.title, p.what) }
