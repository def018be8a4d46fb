// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/internal/matrix"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

func TestBadCommandLines(t *testing.T) {
	testkit.NeedRoot(t)
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"stage", "--stage x: there is none of this name; use one of functional", []string{"--stage", "x"}},
		{"suite", "--suite x: there is none of this name; use one of bpf", []string{"--suite", "x"}},
		{"document of a part", "--doc with --suite or --run", []string{"--doc", "--run", "X"}},
		{"a bench to nowhere", "--out is missing", []string{"bench", "--", "overhead"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command()
			cmd.SetArgs(append(c.args, []string{}...))
			if c.args[0] != "bench" {
				cmd.SetArgs(append(c.args, "--out", t.TempDir()))
			}
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	b := &build{top: "/src", guest: "/b/vmtest", trunkline: "/src/bin/trunkline", tests: map[string]string{"loader": "/b/l", "vmtest": "/b/v"}}
	i := slices.IndexFunc(stages, func(s stage) bool { return s.name == "exact" })
	steps := stages[i].steps(b, &options{scale: 16})
	if len(steps) != 2 || steps[0].Name != featuresStep || steps[1].Name != "vmtest" || steps[1].Dir != "/src/vmtest" {
		t.Fatalf("%+v", steps)
	}
	for _, want := range []string{testkit.ScaleVar + "=16", testkit.ExactVar + "=1"} {
		if !slices.Contains(steps[1].Env, want) {
			t.Errorf("no %s in %v", want, steps[1].Env)
		}
	}
	if !slices.Contains(steps[1].Args, "-test.run=Exact") {
		t.Errorf("%v", steps[1].Args)
	}
}

func TestNewLinesAreTakenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var got []string
	at := int64(0)
	for _, more := range []string{"one\ntw", "o\n", "", "three\n"} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(more); err != nil {
			t.Fatal(err)
		}
		f.Close()
		at += newLines(path, at, func(line string) { got = append(got, line) })
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOnlyTheExactStageTellsOfExactTime(t *testing.T) {
	off, on := []matrix.Feature{{Name: "exact-time"}, {Name: "marks", On: true}}, []matrix.Feature{{Name: "exact-time", On: true}, {Name: "marks"}}
	if got := mergeFeatures(slices.Clone(off), on, stage{}); got[0].On || !got[1].On {
		t.Errorf("%+v", got)
	}
	if got := mergeFeatures(slices.Clone(off), on, stage{exact: true}); !got[0].On || !got[1].On {
		t.Errorf("%+v", got)
	}
}

// A guest that died in the middle has steps without an end, and those are failures.
func TestAStepThatWasNotComeTo(t *testing.T) {
	if r := stepResult(&plan.Report{}, "loader"); r.ExitCode == 0 || r.Err == "" {
		t.Errorf("%+v", r)
	}
}

// A test that is renamed must not drop out of the short stage unseen.
func TestShortNamesTestsThatExist(t *testing.T) {
	top, err := sourceTree()
	if err != nil {
		t.Fatal(err)
	}
	have := ""
	for _, s := range suites {
		files, err := filepath.Glob(filepath.Join(top, s, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			have += string(b)
		}
	}
	for _, name := range short {
		if !strings.Contains(have, "func "+name+"(t *testing.T)") {
			t.Errorf("there is no %s in %v", name, suites)
		}
	}
}
