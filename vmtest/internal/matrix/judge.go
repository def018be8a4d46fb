// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/internal/testkit"
)

// boot is the row that says whether a kernel came up.
const boot = "boot"

// Judge compares what was found on each kernel with what is expected of it, one column a result.
func Judge(e *Expect, results []Result) *Matrix {
	m := &Matrix{expect: e, Columns: []Column{}}
	for _, result := range results {
		j := &judge{expect: e, judgement: e.of(result.Kernel, result.Release), result: result}
		m.Columns = append(m.Columns, j.column())
	}
	return m
}

// judge is at work on one kernel.
type judge struct {
	judgement
	expect *Expect
	result Result

	blamed map[string][]string // tests that skip for a feature that must work, by the feature
}

func (j *judge) column() Column {
	j.blamed = map[string][]string{}
	c := Column{Kernel: j.result.Kernel, Release: j.result.Release, Judged: j.how, By: j.by}
	c.Runs = j.runs()
	c.Suites = j.suites() // before the features, whose cells it may blame
	c.Features = j.features()
	return c
}

// neverShown tells whether every stage that was run lacks a feature on purpose: then nothing is known of it.
func (j *judge) neverShown(feature string) bool {
	return len(j.result.Stages) > 0 && !slices.ContainsFunc(j.result.Stages, func(s Stage) bool { return !j.expect.takesAway(s.Name, feature) })
}

// runs judges the boot and each stage as a whole.
func (j *judge) runs() []Cell {
	first := Cell{Row: boot, State: OK}
	switch {
	case j.result.Err != "":
		first.fail(Reason{Text: j.result.Err})
	case len(j.result.Features) == 0:
		first.fail(Reason{Text: "it told nothing of its features"})
	case len(j.result.Stages) == 0:
		first.fail(Reason{Text: "no stage was run"})
	}
	cells := []Cell{first}
	for _, s := range j.result.Stages {
		cell := Cell{Row: s.Name, State: OK}
		switch {
		case s.Err != "":
			cell.fail(Reason{Text: s.Err, Log: s.Log})
		case len(s.Tests) == 0:
			cell.fail(Reason{Text: "no test ran", Log: s.Log})
		}
		cells = append(cells, cell)
	}
	return cells
}

func (c *Cell) fail(r Reason) {
	c.State = Failed
	c.Reasons = append(c.Reasons, r)
}

// features judges those that were reported and those that should have been.
func (j *judge) features() []Cell {
	var cells []Cell
	reported := map[string]Feature{}
	names := featureNames()
	for _, f := range j.result.Features {
		reported[f.Name] = f
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	for _, name := range names {
		if f, ok := reported[name]; ok {
			cells = append(cells, j.feature(f))
		} else if j.requires(name) && !j.neverShown(name) {
			cells = append(cells, j.unreported(name))
		}
	}
	return cells
}

func (j *judge) feature(f Feature) Cell {
	cell := Cell{Row: f.Name, State: OK, Detail: f.Detail}
	_, known := featureOf(f.Name)
	blame := j.blame(f.Name)
	switch {
	case !known:
		cell.fail(Reason{Text: "nothing is known of this feature",
			Remedy: "give it a line in vmtest/internal/matrix/features.go, and list it in vmtest/expect.yaml where it must work"})
	case !f.On && j.requires(f.Name) && !j.neverShown(f.Name):
		cell.State = Missing
		cell.Reasons = []Reason{{Text: f.Detail, Remedy: f.Remedy}}
	case !f.On:
		cell.State = Off
	case blame != "":
		cell.State = Missing
		cell.Reasons = []Reason{{Text: "it is reported as on: " + f.Detail}}
	case j.strict() && !j.requires(f.Name):
		cell.State = Unexpected
		cell.Reasons = []Reason{{Text: "it works and is not listed: " + f.Detail,
			Remedy: fmt.Sprintf("add it to vmtest/expect.yaml under %s", j.by)}}
	}
	if blame != "" {
		cell.Reasons = append(cell.Reasons, Reason{Text: blame})
	}
	return cell
}

// unreported is a feature that must work and that nobody told of. Where the boot has failed, that is the reason, once.
func (j *judge) unreported(name string) Cell {
	if j.result.Err != "" || len(j.result.Features) == 0 {
		return Cell{Row: name, State: Unknown}
	}
	cell := Cell{Row: name, State: Missing, Reasons: []Reason{{Text: "the run did not tell of it"}}}
	if blame := j.blame(name); blame != "" {
		cell.Reasons = append(cell.Reasons, Reason{Text: blame})
	}
	return cell
}

// blame names the tests that skip for a feature that must work.
func (j *judge) blame(feature string) string {
	tests := j.blamed[feature]
	const most = 8
	switch n := len(tests); {
	case n == 0:
		return ""
	case n == 1:
		return "a test skips for it: " + tests[0]
	case n > most:
		return fmt.Sprintf("%d tests skip for it: %s, and others", n, strings.Join(tests[:most], ", "))
	default:
		return fmt.Sprintf("%d tests skip for it: %s", n, strings.Join(tests, ", "))
	}
}

// skip judges the reason of a skip: it returns why the skip is a failure, or "". One that names a feature that must work is
// no failure of the test but of that feature, which is blamed.
func (j *judge) skip(stage string, t Test) (why, remedy string) {
	rest, ok := strings.CutPrefix(t.Skip, testkit.SkipPrefix)
	switch {
	case t.Skip == "":
		return "skipped without a reason", "skip for a kernel feature alone (testkit.NeedFeature)"
	case !ok:
		return "skipped: " + t.Skip, "skip for a kernel feature alone (testkit.NeedFeature); a program that is missing is a failure (`make deps`)"
	}
	name, reason, _ := strings.Cut(rest, ": ")
	if lacking, ok := strings.CutPrefix(name, "no-"); ok {
		return j.skipForPresence(stage, lacking, t)
	}
	switch _, known := featureOf(name); {
	case !known:
		return fmt.Sprintf("skipped for %q, which is no feature: %s", name, t.Skip), "name one of vmtest/internal/matrix/features.go"
	case j.expect.takesAway(stage, name) || !j.requires(name):
		return "", ""
	}
	by := fmt.Sprintf("%s %s (%s; in %s)", suiteName(t.Package), t.Name, reason, stage)
	if !slices.Contains(j.blamed[name], by) {
		j.blamed[name] = append(j.blamed[name], by)
	}
	return "", ""
}

// skipForPresence judges the skip of a test that looks at what is done without a feature. It must run where nothing says that
// the feature is there.
func (j *judge) skipForPresence(stage, feature string, t Test) (why, remedy string) {
	switch _, known := featureOf(feature); {
	case !known:
		return fmt.Sprintf("skipped for the presence of %q, which is no feature: %s", feature, t.Skip), "name one of vmtest/internal/matrix/features.go"
	case j.strict() && (!j.requires(feature) || j.expect.takesAway(stage, feature)):
		return fmt.Sprintf("skipped because the kernel has %s, which is not expected of it here: %s", feature, t.Skip),
			"list the feature in vmtest/expect.yaml, or see why it is there"
	}
	return "", ""
}
