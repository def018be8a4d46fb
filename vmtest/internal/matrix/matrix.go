// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Matrix is the verdict on some kernels.
type Matrix struct {
	Columns []Column `json:"columns"`

	expect *Expect
}

// Column is the verdict on one kernel.
type Column struct {
	Kernel   string `json:"kernel"`
	Release  string `json:"release"`
	Judged   string `json:"judged"`       // Listed, AsNewest, Unlisted
	By       string `json:"by,omitempty"` // the key of vmtest/expect.yaml that it is judged by
	Features []Cell `json:"features"`
	Suites   []Cell `json:"suites"` // one a package
	Runs     []Cell `json:"runs"`   // the boot and the stages
}

// State is the verdict of a cell.
type State string

// The states of a cell.
const (
	OK         State = "ok"         // works, passed
	Off        State = "off"        // a feature that is off, as expected
	Missing    State = "missing"    // a feature that must work and does not; red
	Unexpected State = "unexpected" // a feature that works and is not listed; red
	Failed     State = "failed"     // failed tests, a failed boot or stage; red
	Unknown    State = "unknown"    // a feature that must work, of a kernel that did not come so far as to tell
)

func (s State) red() bool { return s == Missing || s == Unexpected || s == Failed }

// Cell is the verdict on one feature, suite or run of one kernel.
type Cell struct {
	Row     string   `json:"row"`
	State   State    `json:"state"`
	Passed  int      `json:"passed,omitempty"` // tests, of suites alone
	Skipped int      `json:"skipped,omitempty"`
	Failed  int      `json:"failed,omitempty"`
	Detail  string   `json:"detail,omitempty"`  // what the kernel said of a feature
	Reasons []Reason `json:"reasons,omitempty"` // why it is red
}

// Reason is one thing that makes a cell red.
type Reason struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
	Output string `json:"output,omitempty"` // of a failed test
	Log    string `json:"log,omitempty"`    // path of the kernel log
}

// Red names the red cells of a column.
func (c *Column) Red() []string {
	var red []string
	for _, cell := range c.cells() {
		if cell.State.red() {
			red = append(red, cell.Row)
		}
	}
	return red
}

func (c *Column) cells() []Cell { return slices.Concat(c.Features, c.Suites, c.Runs) }

// OK says whether there is a column and no cell is red.
func (m *Matrix) OK() bool { return len(m.Columns) > 0 && len(m.Red()) == 0 }

// Red names the red cells, as "6.1: marks".
func (m *Matrix) Red() []string {
	var red []string
	for _, c := range m.Columns {
		for _, row := range c.Red() {
			red = append(red, c.Kernel+": "+row)
		}
	}
	return red
}

// JSON writes the matrix for programs, with the reasons and outputs of red cells.
func (m *Matrix) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return fmt.Errorf("writing the matrix as JSON: %w", err)
	}
	return nil
}

// group is a part of the table.
type group struct {
	title string
	good  string // what a cell shows where all is well and there is nothing to count
	rows  []string
	cells func(*Column) []Cell
}

// groups orders the rows of some columns: features as they are listed in features.go, suites by name, runs as they stand
// in vmtest/expect.yaml.
func groups(columns []Column, e *Expect) []group {
	product := group{title: "trunkline", good: "on", cells: func(c *Column) []Cell { return c.Features }}
	kernel := group{title: "kernel", good: "on", cells: product.cells}
	suites := group{title: "tests", good: "0", cells: func(c *Column) []Cell { return c.Suites }}
	runs := group{title: "runs", good: "ok", cells: func(c *Column) []Cell { return c.Runs }}

	seen := rowsOf(columns, product.cells)
	for _, f := range features {
		switch {
		case !slices.Contains(seen, f.name):
		case f.product:
			product.rows = append(product.rows, f.name)
		default:
			kernel.rows = append(kernel.rows, f.name)
		}
	}
	for _, name := range seen {
		if _, known := featureOf(name); !known {
			kernel.rows = append(kernel.rows, name)
		}
	}
	suites.rows = rowsOf(columns, suites.cells)
	slices.Sort(suites.rows)
	runs.rows = rowsOf(columns, runs.cells)
	slices.SortStableFunc(runs.rows, func(a, b string) int {
		if a == boot || b == boot {
			return boolCompare(a != boot, b != boot)
		}
		return e.compareStages(a, b)
	})
	return slices.DeleteFunc([]group{product, kernel, suites, runs}, func(g group) bool { return len(g.rows) == 0 })
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func rowsOf(columns []Column, cells func(*Column) []Cell) []string {
	var rows []string
	for i := range columns {
		for _, cell := range cells(&columns[i]) {
			if !slices.Contains(rows, cell.Row) {
				rows = append(rows, cell.Row)
			}
		}
	}
	return rows
}

// cellOf finds the cell of a row.
func cellOf(cells []Cell, row string) (Cell, bool) {
	i := slices.IndexFunc(cells, func(c Cell) bool { return c.Row == row })
	if i < 0 {
		return Cell{}, false
	}
	return cells[i], true
}

// suiteName shortens a package of this module to its directory.
func suiteName(pkg string) string {
	const module = "github.com/trunkline/trunkline"
	switch name, ok := strings.CutPrefix(pkg, module+"/"); {
	case ok:
		return name
	case pkg == module:
		return "(root)"
	case pkg == "":
		return "(no package)"
	}
	return pkg
}
