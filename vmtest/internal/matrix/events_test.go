// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// ev writes one event of the package "p/q"; output only where there is some.
func ev(action, test, output string) string {
	e := map[string]any{"Time": "2026-01-02T03:04:05Z", "Action": action, "Package": "p/q"}
	if test != "" {
		e["Test"] = test
	}
	if output != "" {
		e["Output"] = output
	}
	if action == Pass || action == Fail || action == Skip {
		e["Elapsed"] = 1.5
	}
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b) + "\n"
}

// ran is a test that ran and ended.
func ran(test, verdict string, lines ...string) string {
	s := ev("run", test, "") + ev("output", test, "=== RUN   "+test+"\n")
	for _, line := range lines {
		s += ev("output", test, line+"\n")
	}
	return s + ev(verdict, test, "")
}

func passed(name string) Test { return Test{Package: "p/q", Name: name, Outcome: Pass, Seconds: 1.5} }

const waited = " has no verdict: the process ended while it ran or waited\n"

var eventCases = map[string]struct {
	events string
	want   []Test
}{
	"nothing": {"", nil},
	"all well": {
		ev("start", "", "") + ran("TestA", Pass, "    a_test.go:3: chatter") + ran("TestB", Pass) + ev("output", "", "PASS\n") + ev(Pass, "", ""),
		[]Test{passed("TestA"), passed("TestB")},
	},
	"a failure keeps its output": {
		ran("TestA", Fail, "    a_test.go:3: lost 5\u00b5s", "        and more", "--- FAIL: TestA (1.50s)") + ev(Fail, "", ""),
		[]Test{{Package: "p/q", Name: "TestA", Outcome: Fail, Seconds: 1.5,
			Output: "    a_test.go:3: lost 5\u00b5s\n        and more\n--- FAIL: TestA (1.50s)\n"}},
	},
	"a skip, logs before and after it": {
		ran("TestA", Skip, "    a_test.go:3: before", "    a_test.go:4: kernel feature tcx: no such", "        hook", "    lab.go:9: undone") + ev(Pass, "", ""),
		[]Test{{Package: "p/q", Name: "TestA", Outcome: Skip, Seconds: 1.5, Skip: "kernel feature tcx: no such hook"}},
	},
	"a skip for another reason, and one for none": {
		ran("TestA", Skip, "    a_test.go:4: needs root") + ran("TestB", Skip) + ev(Pass, "", ""),
		[]Test{{Package: "p/q", Name: "TestA", Outcome: Skip, Seconds: 1.5, Skip: "needs root"}, {Package: "p/q", Name: "TestB", Outcome: Skip, Seconds: 1.5}},
	},
	"subtests are folded, but not skipped ones": {
		ev("run", "TestA", "") + ran("TestA/a_b/c", Skip, "    a_test.go:4: kernel feature ipv6: off") +
			ran("TestA/d", Fail, "    a_test.go:5: bad") + ran("TestA/e", Pass, "    a_test.go:6: quiet") +
			ev("output", "TestA", "--- FAIL: TestA (0.00s)\n") + ev(Fail, "TestA", "") + ev(Fail, "", ""),
		[]Test{{Package: "p/q", Name: "TestA", Outcome: Fail, Seconds: 1.5, Output: "--- FAIL: TestA (0.00s)\n    a_test.go:5: bad\n"},
			{Package: "p/q", Name: "TestA/a_b/c", Outcome: Skip, Seconds: 1.5, Skip: "kernel feature ipv6: off"}},
	},
	"a panic, another test waiting": {
		ev("run", "TestWait", "") + ev("pause", "TestWait", "") +
			ev("run", "TestA", "") + ev("output", "TestA", "panic: ouch\n") + ev(Fail, "TestA", "") + ev("output", "", "FAIL\n") + ev(Fail, "", ""),
		[]Test{{Package: "p/q", Name: "TestWait", Outcome: Fail, Output: "TestWait" + waited},
			{Package: "p/q", Name: "TestA", Outcome: Fail, Seconds: 1.5, Output: "panic: ouch\n"}},
	},
	"killed within a test, the last line cut short": {
		ran("TestA", Pass) + ev("run", "TestB", "") + ev("output", "TestB", "    b_test.go:1: so far\n") + `{"Action":"pa`,
		[]Test{passed("TestA"), {Package: "p/q", Name: "TestB", Outcome: Fail, Output: "    b_test.go:1: so far\nTestB" + waited}},
	},
	"killed within a subtest": {
		ev("run", "TestB", "") + ev("run", "TestB/x", ""),
		[]Test{{Package: "p/q", Name: "TestB", Outcome: Fail, Output: "TestB" + waited + "TestB/x" + waited}},
	},
	"killed between tests, after words of the kernel": {
		ran("TestA", Pass) + "[   12.5] Out of memory\n",
		[]Test{passed("TestA"), {Package: "p/q", Name: PackageItself, Outcome: Fail,
			Output: "[   12.5] Out of memory\nthe process ended without a verdict: killed, or exited within a test\n"}},
	},
	"the package fails though no test did": {
		ran("TestA", Pass) + ev("output", "", "leaked a namespace\n") + ev(Fail, "", ""),
		[]Test{passed("TestA"), {Package: "p/q", Name: PackageItself, Outcome: Fail,
			Output: "leaked a namespace\nthe package failed, though none of its tests did\n"}},
	},
	"a package that does not build": {
		`{"ImportPath":"p/q [p/q.test]","Action":"build-output","Output":"./a.go:1: no\n"}` + "\n" +
			`{"ImportPath":"p/q [p/q.test]","Action":"build-fail"}` + "\n" + ev(Fail, "", ""),
		[]Test{{Package: "p/q", Name: PackageItself, Outcome: Fail, Output: "./a.go:1: no\nthe package failed, though none of its tests did\n"}},
	},
	"several packages, one of them twice, mixed": {
		ran("TestA", Pass) + strings.ReplaceAll(ran("TestA", Pass), "p/q", "other") + ev(Pass, "", "") +
			strings.ReplaceAll(ev(Pass, "", ""), "p/q", "other") + ran("TestA", Fail) + ev(Fail, "", ""),
		[]Test{passed("TestA"), {Package: "other", Name: "TestA", Outcome: Pass, Seconds: 1.5},
			{Package: "p/q", Name: "TestA", Outcome: Fail, Seconds: 1.5}},
	},
	"a test run twice": {
		ran("TestA", Pass) + ran("TestA", Fail, "    a_test.go:1: the second") + ev(Fail, "", ""),
		[]Test{passed("TestA"), {Package: "p/q", Name: "TestA", Outcome: Fail, Seconds: 1.5, Output: "    a_test.go:1: the second\n"}},
	},
	"a package without tests": {ev(Skip, "", ""), nil},
}

func TestParseTests(t *testing.T) {
	for name, c := range eventCases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTests(strings.NewReader(c.events))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", lines(got), lines(c.want))
			}
		})
	}
}

func lines(tests []Test) string {
	var b strings.Builder
	for _, t := range tests {
		fmt.Fprintf(&b, "%+v\n", t)
	}
	return b.String()
}

func TestParseTestsRefusesWhatIsNoEvents(t *testing.T) {
	_, err := ParseTests(strings.NewReader("=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n"))
	if err == nil || !strings.Contains(err.Error(), "=== RUN") || !strings.Contains(err.Error(), "test2json") {
		t.Errorf("%v", err)
	}
}

func TestParseTestsReturnsWhatItReadBeforeAnError(t *testing.T) {
	broken := errors.New("broken")
	got, err := ParseTests(io.MultiReader(strings.NewReader(ran("TestA", Pass)), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(got) != 2 || got[0].Outcome != Pass || got[1].Name != PackageItself {
		t.Errorf("%v, %v", got, err)
	}
}

func TestALongOutputKeepsItsEnds(t *testing.T) {
	var events strings.Builder
	events.WriteString(ev("run", "TestA", ""))
	for i := range 20_000 {
		events.WriteString(ev("output", "TestA", fmt.Sprintf("line %d of a stuck test\n", i)))
	}
	got, err := ParseTests(strings.NewReader(events.String() + ev(Fail, "TestA", "") + ev(Fail, "", "")))
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	out := got[0].Output
	if !strings.HasPrefix(out, "line 0 of") || !strings.HasSuffix(out, "line 19999 of a stuck test\n") || !strings.Contains(out, "bytes are left out") {
		t.Errorf("%.60q ... %q", out, out[len(out)-60:])
	}
	if len(out) > 2*excerptBytes+100 {
		t.Errorf("%d bytes are kept", len(out))
	}
}

func TestEnded(t *testing.T) {
	failed := []Test{{Package: "p/q", Name: "TestA", Outcome: Fail}}
	for _, c := range []struct {
		tests []Test
		code  int
		why   string
		want  int
	}{
		{[]Test{passed("TestA")}, 0, "", 1},
		{[]Test{passed("TestA")}, 1, "", 2},
		{nil, -1, "timed out after 60 s", 1},
		{failed, 1, "", 1},
	} {
		got := Ended(c.tests, "p/q", c.code, c.why)
		if len(got) != c.want {
			t.Errorf("code %d, %q: %v", c.code, c.why, got)
		}
		if n := len(got); n > len(c.tests) && (got[n-1].Outcome != Fail || !strings.Contains(got[n-1].Output, c.why)) {
			t.Errorf("code %d, %q: %v", c.code, c.why, got)
		}
	}
}
