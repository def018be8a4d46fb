// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// RowFile gets rows as they come, so that what is interrupted after hours has not been for nothing.
type RowFile struct{ f *os.File }

// rowsName is the file of all rows below --out.
const rowsName = "rows.tsv"

// OpenRows makes the file in a directory, or nothing where there is none, for rows of the kind of an example: structs as those of
// a report.
func OpenRows(dir string, example any) (*RowFile, error) {
	if dir == "" {
		return &RowFile{}, nil
	}
	f, err := os.Create(filepath.Join(dir, rowsName))
	if err != nil {
		return nil, fmt.Errorf("--out %s: %w", dir, err)
	}
	w := &RowFile{f}
	return w, w.line(RowNames(example))
}

// Add writes a row.
func (w *RowFile) Add(row any) error {
	if w.f == nil {
		return nil
	}
	return w.line(RowValues(row))
}

func (w *RowFile) line(cells []string) error {
	if _, err := w.f.WriteString(strings.Join(cells, "\t") + "\n"); err != nil {
		return fmt.Errorf("writing %s: %w", rowsName, err)
	}
	return nil
}

// Close closes the file, if there is one.
func (w *RowFile) Close() error {
	if w == nil || w.f == nil {
		return nil
	}
	return w.f.Close()
}

// eachField calls f with what a field is called in JSON.
func eachField(row any, f func(name string, value reflect.Value, optional bool)) {
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		if name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); name != "" {
			f(name, v.Field(i), option == "omitempty")
		}
	}
}

// RowNames are the fields of a row as JSON calls them.
func RowNames(row any) (names []string) {
	eachField(row, func(name string, _ reflect.Value, _ bool) { names = append(names, name) })
	return names
}

// RowValues writes figures as JSON does.
func RowValues(row any) (values []string) {
	eachField(row, func(_ string, v reflect.Value, optional bool) {
		if optional && v.IsZero() {
			values = append(values, "")
			return
		}
		text, err := json.Marshal(v.Interface())
		if err != nil {
			text = []byte(err.Error())
		}
		values = append(values, strings.Trim(string(text), `"`))
	})
	return values
}
