// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/trunkline/trunkline/internal/testkit"
)

// sample is a bench that has found something already.
func sample() *Bench {
	return &Bench{Name: "sample", Run: func(context.Context, *Session) (*Report, error) {
		return &Report{
			Rows:   []any{map[string]any{"setting": "a<b", "goodput_Mbps": 9.4}, map[string]any{"setting": "b", "goodput_Mbps": 9.6}},
			Tables: []Table{{Title: "What came of it", Words: 1, Header: []string{"SETTING", "Mbit/s"}, Rows: [][]string{{"a", "9.4"}, {"b", "10"}}}},
			Plots:  []Plot{{Name: "goodput", Draw: Bars("Goodput", "Mbit/s", []string{"a", "b"}, []Spread{{9.4, 9.3, 9.5}, {9.6, 9.6, 9.7}})}},
		}, nil
	}}
}

func TestRunPrintsTableAndWritesFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "results")
	var out bytes.Buffer
	if err := Run(t.Context(), sample(), Options{Out: dir, Seed: 7, Quick: true, Version: "v1", Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\nSETTING  Mbit/s\na           9.4\nb            10\n") {
		t.Errorf("the table is\n%s", &out)
	}
	if table, err := os.ReadFile(filepath.Join(dir, "table.txt")); err != nil || !bytes.Equal(table, out.Bytes()) {
		t.Errorf("the table in the file is another: %v", err)
	}
	if svg, err := os.ReadFile(filepath.Join(dir, "goodput.svg")); err != nil || !bytes.Contains(svg, []byte("</svg>")) {
		t.Errorf("no plot: %v", err)
	}
	var r struct {
		Machine Machine
		Rows    []map[string]any
	}
	text, err := os.ReadFile(filepath.Join(dir, "bench.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := r.Machine
	if m.Bench != "sample" || m.Seed != 7 || !m.Quick || m.Trunkline != "v1" || m.Kernel == "" || m.CPU == "" || m.Cores < 1 || m.MemoryMB < 1 {
		t.Errorf("the machine is %+v", m)
	}
	if len(r.Rows) != 2 || r.Rows[0]["setting"] != "a<b" || r.Rows[1]["goodput_Mbps"] != 9.6 {
		t.Errorf("the rows are %v", r.Rows)
	}
}

func TestRunPrintsJSON(t *testing.T) {
	t.Setenv(exactVar, "1")
	var out bytes.Buffer
	if err := Run(t.Context(), sample(), Options{JSON: true, Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r) != 2 || r["machine"].(map[string]any)["exact_time"] != true {
		t.Errorf("%v in %s", err, &out)
	}
}

func TestRunNamesTheDirectoryItCannotMake(t *testing.T) {
	b := sample()
	b.Run = func(context.Context, *Session) (*Report, error) {
		t.Error("measured before the directory was tried")
		return nil, errors.New("no")
	}
	err := Run(t.Context(), b, Options{Out: "/proc/nowhere", Stdout: io.Discard, Stderr: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--out /proc/nowhere") {
		t.Errorf("got %v", err)
	}
}

func TestRunSaysThatItWasInterrupted(t *testing.T) {
	b := sample()
	b.Run = func(ctx context.Context, _ *Session) (*Report, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return nil, errors.New("a child was killed")
	}
	if err := Run(t.Context(), b, Options{Stdout: io.Discard, Stderr: io.Discard}); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestSpread(t *testing.T) {
	if got := Of([]float64{4, 1, 3, 2}); got != (Spread{2.5, 1.75, 3.25}) {
		t.Errorf("got %v", got)
	}
	if got := Of(nil); got != (Spread{}) {
		t.Errorf("of nothing: %v", got)
	}
	for v, want := range map[float64]float64{0: 0, 123456: 123500, 0.000123456: 0.0001235, -98.765: -98.77, 1: 1} {
		if got := Significant(v, 4); got != want {
			t.Errorf("%v to 4 digits is %v, want %v", v, got, want)
		}
	}
	zero := 0.0
	if got := Significant(1/zero, 4); got != 0 {
		t.Errorf("infinity is %v, which JSON cannot say", got)
	}
}

func TestInterleave(t *testing.T) {
	order := Interleave(1, 20, 4)
	different := false
	for _, round := range order {
		different = different || !slices.Equal(round, order[0])
		if sorted := slices.Sorted(slices.Values(round)); !slices.Equal(sorted, []int{0, 1, 2, 3}) {
			t.Errorf("a round is %v", round)
		}
	}
	if !different {
		t.Error("every round has the same order")
	}
	if again := Interleave(1, 20, 4); !slices.EqualFunc(order, again, slices.Equal) {
		t.Error("the same seed gives another order")
	}
}

func TestTableFits(t *testing.T) {
	long := strings.Repeat("a title of many words ", 12)
	r := Report{Machine: describeMachine("sample", Options{}), Tables: []Table{{Title: long, Header: []string{"A"}, Words: 1, Notes: []string{long}}}}
	var b strings.Builder
	r.table(&b)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > pageWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestProgress(t *testing.T) {
	var b strings.Builder
	p := NewProgress(&b)
	p.Step(1, 4, "too early to tell")
	p.last = p.last.Add(-logEvery)
	p.Step(2, 4, "round %d", 1)
	p.Notef("a thing")
	p.Close()
	if b.String() != " 50 %     0 s  round 1\nnote: a thing\n" {
		t.Errorf("got %q", b.String())
	}
}

// The variable is the tests' and the runner's; the product only tells whether it is set.
func TestExactVar(t *testing.T) {
	if exactVar != testkit.ExactVar {
		t.Errorf("%s is not %s", exactVar, testkit.ExactVar)
	}
}

func TestCPUModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cpuinfo")
	if err := os.WriteFile(path, []byte("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cpuModel(path); got != "Some CPU @ 2 GHz" {
		t.Errorf("got %q", got)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{5, 5, 5}, 1}, {[]float64{1, 0, 0, 0}, 0.25}, {[]float64{3, 1}, 0.8}, {nil, 0}, {[]float64{0, 0}, 0}} {
		if got := Jain(c.values); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}
