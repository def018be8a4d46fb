// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const root = "github.com/trunkline/trunkline/"

func pass(pkg, name string) Test { return Test{Package: root + pkg, Name: name, Outcome: Pass} }

func skip(pkg, name, why string) Test {
	return Test{Package: root + pkg, Name: name, Outcome: Skip, Skip: why}
}

func fail(pkg, name, output string) Test {
	return Test{Package: root + pkg, Name: name, Outcome: Fail, Output: output, Seconds: 3.14}
}

// onOff reports features; those that begin with "-" are off.
func onOff(names string) []Feature {
	var list []Feature
	for _, name := range strings.Fields(names) {
		off, isOff := strings.CutPrefix(name, "-")
		f := Feature{Name: off, On: !isOff, Detail: "because " + off}
		if isOff {
			f.Remedy = "mend " + off
		}
		list = append(list, f)
	}
	return list
}

// functional is a result with one stage.
func functional(kernel, features string, tests ...Test) Result {
	return Result{Kernel: kernel, Release: kernel + ".9", Features: onOff(features),
		Stages: []Stage{{Name: "functional", Tests: tests, Log: "/tmp/" + kernel + ".log"}}}
}

// reasonsOf gathers all that is said of red cells.
func reasonsOf(m *Matrix) string {
	var b strings.Builder
	for _, c := range m.Columns {
		for _, cell := range c.cells() {
			for _, r := range cell.Reasons {
				fmt.Fprintf(&b, "%s: %s | %s | %s | %s\n", cell.Row, r.Text, r.Remedy, r.Output, r.Log)
			}
		}
	}
	return b.String()
}

const all61 = "rules telemetry splice btf -tcx"

var ok = pass("loader", "TestA")

var verdicts = map[string]struct {
	result Result
	red    string // rows, by spaces
	says   []string
}{
	"all as expected":       {functional("6.1", all61, ok), "", nil},
	"a listed one is off":   {functional("6.1", "rules telemetry -splice btf", ok), "splice", []string{"splice: because splice | mend splice"}},
	"a listed one not told": {functional("6.1", "rules telemetry btf", ok), "splice", []string{"the run did not tell of it"}},
	"one is on, not listed": {functional("6.1", all61+" marks", ok), "marks",
		[]string{"it works and is not listed: because marks", "add it to vmtest/expect.yaml under 6.1"}},
	"unexpected on the newest": {functional("7.3", "rules marks pins btf tcx", ok), "tcx", []string{"vmtest/expect.yaml under newest"}},
	"nobody knows it":          {functional("6.1", all61+" warp", ok), "warp", []string{"features.go"}},
	"a skip for what is off":   {functional("6.1", all61, ok, skip("loader", "TestB", "kernel feature tcx: before 6.6")), "", nil},
	"a skip for what is listed and off": {
		functional("6.1", "rules telemetry -splice btf", ok, skip("loader", "TestB", "kernel feature splice: a fault"), skip("proxy", "TestC", "kernel feature splice: a fault")),
		"splice", []string{"because splice | mend splice", "2 tests skip for it: loader TestB (a fault; in functional), proxy TestC"}},
	"a skip for what is listed and on": {
		functional("6.1", all61, ok, skip("loader", "TestB", "kernel feature splice: a fault")),
		"splice", []string{"it is reported as on", "a test skips for it: loader TestB (a fault; in functional)"}},
	"a skip for what a stage takes away": {
		Result{Kernel: "6.1-nobtf", Features: onOff("rules ipv6"), Stages: []Stage{{Name: "no-ipv6",
			Tests: []Test{ok, skip("loader", "TestB", "kernel feature ipv6: switched off")}}}}, "", nil},
	"the same skip in another stage": {
		functional("6.1-nobtf", "rules ipv6", ok, skip("loader", "TestB", "kernel feature ipv6: switched off")), "ipv6", nil},
	"a skip for the presence of what is listed": {
		functional("6.1", all61, ok, skip("loader", "TestB", "kernel feature no-btf: it has BTF")), "", nil},
	"a skip for the presence of what is not listed": {
		functional("6.1-nobtf", "rules ipv6", ok, skip("loader", "TestB", "kernel feature no-btf: it has BTF")), "loader",
		[]string{"skipped because the kernel has btf"}},
	"a skip for the presence of nothing": {
		functional("6.1", all61, ok, skip("loader", "TestB", "kernel feature no-warp: 9")), "loader", []string{"which is no feature"}},
	"a skip for no feature": {functional("6.1", all61, ok, skip("loader", "TestB", "kernel feature warp: 9")), "loader",
		[]string{`TestB in functional skipped for "warp", which is no feature`}},
	"a skip for a program": {functional("6.1", all61, ok, skip("loader", "TestB", "no iperf3 here")), "loader",
		[]string{"TestB in functional skipped: no iperf3 here", "make deps"}},
	"a skip without a reason": {functional("6.1", all61, skip("loader", "TestB", "")), "loader", []string{"skipped without a reason"}},
	"a failed test": {functional("6.1", all61, ok, fail("loader", "TestB", "lost 3 bytes")), "loader",
		[]string{"TestB in functional failed after 3.1 s", "lost 3 bytes", "/tmp/6.1.log"}},
	"an outcome nobody knows": {functional("6.1", all61, Test{Package: root + "loader", Name: "TestB", Outcome: "paused"}), "loader", nil},
	"no boot":                 {Result{Kernel: "6.1", Err: "no console for 60 s"}, boot, []string{"boot: no console for 60 s"}},
	"no features":             {Result{Kernel: "6.1", Stages: []Stage{{Name: "functional", Tests: []Test{ok}}}}, boot, []string{"told nothing"}},
	"no stage":                {Result{Kernel: "6.1", Features: onOff(all61)}, boot, []string{"no stage was run"}},
	"a stage died": {Result{Kernel: "6.1", Features: onOff(all61), Stages: []Stage{{Name: "functional", Tests: []Test{ok}},
		{Name: "exact", Err: "the machine hangs", Log: "/tmp/x.log"}}}, "exact", []string{"exact: the machine hangs |  |  | /tmp/x.log"}},
	"a stage without tests": {functional("6.1", all61), "functional", []string{"no test ran"}},
	"own kernel, kernel features do not matter": {
		functional("bzImage", "rules marks -btf -tcx pins", ok, skip("loader", "TestB", "kernel feature btf: built without")), "", nil},
	"own kernel, product features do": {functional("bzImage", "-rules marks", ok), "rules", []string{"because rules"}},
}

func TestJudge(t *testing.T) {
	for name, c := range verdicts {
		t.Run(name, func(t *testing.T) {
			if c.result.Kernel == "bzImage" {
				c.result.Release = "6.18.44"
			}
			m := Judge(mustExpect(t, someKernels), []Result{c.result})
			if got := strings.Join(m.Columns[0].Red(), " "); got != c.red {
				t.Errorf("red: %q, want %q\n%s", got, c.red, reasonsOf(m))
			}
			if m.OK() != (c.red == "") {
				t.Errorf("OK is %v", m.OK())
			}
			for _, want := range c.says {
				if !strings.Contains(reasonsOf(m), want) {
					t.Errorf("%q is not said in\n%s", want, reasonsOf(m))
				}
			}
		})
	}
}

func TestTestsAreCountedOnceAKernel(t *testing.T) {
	const lacks = "kernel feature tcx: before 6.6"
	result := Result{Kernel: "6.1", Features: onOff("rules telemetry splice btf -tcx"), Stages: []Stage{
		{Name: "functional", Tests: []Test{pass("loader", "TestA"), skip("loader", "TestB", "kernel feature exact-time: by the host's clock"),
			skip("loader", "TestC", lacks), fail("loader", "TestD", ""), pass("", "TestHouse")}},
		{Name: "exact", Tests: []Test{pass("loader", "TestA"), pass("loader", "TestB"), skip("loader", "TestC", lacks), pass("loader", "TestD"),
			skip("loader", "TestA/sub", lacks)}},
	}}
	m := Judge(mustExpect(t, someKernels), []Result{result})
	cell, _ := cellOf(m.Columns[0].Suites, "loader")
	if cell.Passed != 2 || cell.Skipped != 2 || cell.Failed != 1 {
		t.Errorf("%+v", cell)
	}
	if got := m.Red(); !slices.Equal(got, []string{"6.1: loader"}) {
		t.Errorf("red: %v", got)
	}
}

func TestNoKernelIsNotOK(t *testing.T) {
	if Judge(mustExpect(t, someKernels), nil).OK() {
		t.Error("nothing was run, and all is well")
	}
}

func TestJSONHasOutputs(t *testing.T) {
	m := Judge(mustExpect(t, someKernels), []Result{functional("6.1", "rules telemetry splice btf", fail("loader", "TestB", "lost 3 bytes"))})
	var b bytes.Buffer
	if err := m.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Matrix
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(reasonsOf(&back), "lost 3 bytes") {
		t.Error(b.String())
	}
}
