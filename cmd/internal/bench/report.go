// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
)

// Report is what a bench found. Each row is a flat struct whose JSON fields carry every parameter and figure, with the unit
// in the name (goodput_Mbps, rtt_ms); a figure of several runs is the median, beside its quartiles (_q1, _q3).
type Report struct {
	Machine Machine // filled in by Run
	Rows    []any
	Tables  []Table
	Plots   []Plot
	Files   map[string][]byte // further ones for --out, by name
}

// What --out writes, beside the plots under their own names.
const (
	tableName = "table.txt"
	jsonName  = "bench.json"
)

func makeOut(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out %s: making the directory: %w", dir, err)
	}
	return nil
}

// deliver prints the report and writes the files that were asked for. What cannot be printed may still be written.
func (r *Report) deliver(o Options) error {
	asJSON, err := r.json()
	if err != nil {
		return err
	}
	var table bytes.Buffer
	r.table(&table)
	print := table.Bytes()
	if o.JSON {
		print = asJSON
	}
	var errs []error
	if _, err := o.Stdout.Write(print); err != nil {
		errs = append(errs, fmt.Errorf("writing the result: %w", err))
	}
	if o.Out != "" {
		errs = append(errs, r.files(o.Out, table.Bytes(), asJSON))
	}
	return errors.Join(errs...)
}

func (r *Report) files(dir string, table, asJSON []byte) error {
	files := map[string][]byte{tableName: table, jsonName: asJSON}
	maps.Copy(files, r.Files)
	for _, p := range r.Plots {
		svg, err := p.svg()
		if err != nil {
			return fmt.Errorf("plotting %s: %w", p.Name, err)
		}
		files[p.Name+".svg"] = svg
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("--out %s: %w", dir, err)
		}
	}
	return nil
}

// json is the whole as one object, a line to a row, so that results of two runs can be compared line by line.
func (r *Report) json() ([]byte, error) {
	machine, err := line(r.Machine)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"machine\": %s,\n  \"rows\": [", machine)
	for i, row := range r.Rows {
		text, err := line(row)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n    %s", text)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes(), nil
}

func line(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// table writes all tables below a line that says where the figures come from.
func (r *Report) table(w io.Writer) {
	m := r.Machine
	clock := ""
	if m.ExactTime {
		clock = ", the clock counts instructions"
	}
	quick := ""
	if m.Quick {
		quick = " --quick"
	}
	writeWrapped(w, fmt.Sprintf("trunkline %s, bench %s%s, %s; Linux %s, %d x %s, load %.2f%s", m.Trunkline, m.Bench, quick, m.Date,
		m.Kernel, m.Cores, m.CPU, m.Load, clock), "")
	for i := range r.Tables {
		fmt.Fprintln(w)
		r.Tables[i].Write(w)
	}
}
