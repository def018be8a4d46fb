// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trunkline/trunkline/internal/testkit"
)

// packageRun is what is known of one run of a package's tests.
type packageRun struct {
	pkg    string
	order  []*testRun // as started; a subtest comes after its parent
	byName map[string]*testRun
	output excerpt // what belongs to no test
}

// testRun is one test or subtest.
type testRun struct {
	name    string
	verdict string // "": none yet
	seconds float64
	output  excerpt
}

func (p *packageRun) event(e event) {
	t := p.byName[e.Test]
	if t == nil || (e.Action == "run" && t.verdict != "") { // the latter: -test.count above 1
		t = &testRun{name: e.Test}
		p.byName[e.Test] = t
		p.order = append(p.order, t)
	}
	switch e.Action {
	case "output":
		if !framing(e.Output) {
			t.output.add(e.Output)
		}
	case Pass, Fail, Skip:
		t.verdict, t.seconds = e.Action, e.Elapsed
	}
}

// framing says whether a line only tells which test is running.
func framing(line string) bool {
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS: ")
}

// tests folds subtests into their parents and gives a verdict to what has none.
func (p *packageRun) tests(verdict string) []Test {
	var list []Test
	failed := false
	parent := map[string]int{} // index in list of the newest top-level test of a name
	for _, t := range p.order {
		root, _, sub := strings.Cut(t.name, "/")
		test := t.test(p.pkg)
		failed = failed || test.Outcome == Fail
		i, known := parent[root]
		if !sub || !known || test.Outcome == Skip {
			list = append(list, test)
			if !sub {
				parent[root] = len(list) - 1
			}
			continue
		}
		if test.Outcome == Fail {
			list[i].Outcome, list[i].Skip = Fail, ""
			list[i].Output += test.Output
		}
	}
	if why := packageFault(verdict, failed); why != "" {
		output := p.output.String()
		if output != "" && !strings.HasSuffix(output, "\n") {
			output += "\n"
		}
		list = append(list, Test{Package: p.pkg, Name: PackageItself, Outcome: Fail, Output: output + why + "\n"})
	}
	return list
}

// packageFault says why a package failed where none of its tests says so.
func packageFault(verdict string, failed bool) string {
	switch {
	case failed:
		return ""
	case verdict == "":
		return "the process ended without a verdict: killed, or exited within a test"
	case verdict == Fail:
		return "the package failed, though none of its tests did"
	}
	return ""
}

func (t *testRun) test(pkg string) Test {
	test := Test{Package: pkg, Name: t.name, Outcome: t.verdict, Seconds: t.seconds}
	switch t.verdict {
	case Skip:
		test.Skip = skipReason(t.output.String())
	case Fail:
		test.Output = t.output.String()
	case "":
		test.Outcome = Fail
		test.Output = t.output.String() + fmt.Sprintf("%s has no verdict: the process ended while it ran or waited\n", t.name)
	}
	return test
}

// logLine begins what t.Log and t.Skip print.
var logLine = regexp.MustCompile(`^ *[^ :]+\.go:\d+: `)

// skipReason finds the reason among what a skipped test printed: what names a kernel feature, else what it logged last (a
// clean-up may log after the skip). Further lines of it are indented.
func skipReason(output string) string {
	var found []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		switch at := logLine.FindStringIndex(line); {
		case at != nil:
			found = append(found, line[at[1]:])
		case len(found) > 0 && strings.HasPrefix(line, "        "):
			found[len(found)-1] += " " + strings.TrimSpace(line)
		}
	}
	for i := len(found) - 1; i >= 0; i-- {
		if strings.HasPrefix(found[i], testkit.SkipPrefix) {
			return found[i]
		}
	}
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// excerptBytes is how much is kept of the beginning of an output, and how much of its end.
const excerptBytes = 32 << 10

// excerpt keeps the beginning and the end of an output: a test that is stuck prints every goroutine.
type excerpt struct {
	head, tail []byte
	left       int // bytes out between the two
}

func (x *excerpt) add(s string) {
	room := min(excerptBytes-len(x.head), len(s))
	x.head = append(x.head, s[:room]...)
	x.tail = append(x.tail, s[room:]...)
	if over := len(x.tail) - excerptBytes; over > excerptBytes { // rarely, so that each byte is moved once
		x.tail = append(x.tail[:0], x.tail[over:]...)
		x.left += over
	}
}

func (x *excerpt) String() string {
	tail, left := x.tail, x.left
	if over := len(tail) - excerptBytes; over > 0 {
		tail, left = tail[over:], left+over
	}
	if left == 0 {
		return string(x.head) + string(tail)
	}
	return fmt.Sprintf("%s\n... %d bytes are left out ...\n%s", x.head, left, tail)
}
