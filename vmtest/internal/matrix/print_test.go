// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// sampleFeatures are all that are known, on but for what a kernel lacks.
func sampleFeatures(lacks ...string) []Feature {
	list := onOff(strings.Join(featureNames(), " "))
	for i := range list {
		for _, name := range lacks {
			if list[i].Name == name {
				list[i] = onOff("-" + name)[0]
			}
		}
	}
	return list
}

var samplePackages = []string{"", "loader", "loader/ledger", "loader/policy", "proxy", "proxy/dedup/native", "cmd/internal/hostcheck",
	"vmtest", "vmtest/internal/a/very/deep/directory", "cc"}

// sampleTests are n tests of each package, some skipped for a feature.
func sampleTests(n int, feature string) []Test {
	var list []Test
	for _, pkg := range samplePackages {
		for i := range n {
			t := pass(pkg, fmt.Sprintf("Test%d", i))
			if feature != "" && i < 12 {
				t = skip(pkg, t.Name, "kernel feature "+feature+": this kernel lacks it")
			}
			t.Package = strings.TrimSuffix(t.Package, "/")
			list = append(list, t)
		}
	}
	return list
}

// sample is five kernels, of which two have red cells.
func sample() []Result {
	stage := func(name, feature string) Stage { return Stage{Name: name, Tests: sampleTests(140, feature)} }
	results := []Result{
		{Kernel: "6.1", Release: "6.1.0-57-amd64", Features: sampleFeatures("tcx", "struct-ops-link", "splice"), Stages: []Stage{stage("functional", "tcx")}},
		{Kernel: "6.1-nobtf", Release: "6.1.192", Features: sampleFeatures("tcx", "struct-ops-link", "btf", "mptcp", "struct-ops", "splice"),
			Stages: []Stage{stage("functional", "btf")}},
		{Kernel: "6.12", Release: "6.12.95+deb12-amd64", Features: sampleFeatures("splice"), Stages: []Stage{stage("functional", "splice"), stage("no-ipv6", "ipv6")}},
		{Kernel: "7.3", Release: "7.3.4+deb13-amd64", Features: sampleFeatures("splice"), Stages: []Stage{stage("functional", ""), stage("exact", "")}},
		{Kernel: "bzImage", Release: "6.18.44", Features: sampleFeatures("splice", "netem"), Stages: []Stage{stage("functional", "")}},
	}
	return results
}

// broken makes two columns of a sample red.
func broken(results []Result) []Result {
	results[0].Features[5] = Feature{Name: "marks", Detail: "program tl_mark: unknown func bpf_tcp_nothing#999, " + strings.Repeat("said at length ", 12),
		Remedy: "needs Linux 6.6 or later"}
	var out strings.Builder
	for i := range 60 {
		fmt.Fprintf(&out, "    stream_test.go:12: line %d \u2192 %s\n", i, strings.Repeat("x", 90))
	}
	out.WriteString("\x1b[31mred\x1b[0m after 5\u00b5s\n")
	results[2].Stages[0].Tests[5] = fail("loader", "TestStream", out.String())
	results[2].Stages[0].Tests[6] = fail("loader", "TestPanic", "before\npanic: ouch\n"+strings.Repeat("goroutine\n", 300))
	results[2].Stages[1].Err, results[2].Stages[1].Log = "no sign of life for 60 s", "/var/cache/"+strings.Repeat("deep/", 30)+"kernel.log"
	return results
}

func printed(t *testing.T, results []Result, colour bool) string {
	t.Helper()
	e, err := LoadExpect("../../expect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	Judge(e, results).Print(&b, colour)
	return b.String()
}

func TestFiveKernelsFitInOneTable(t *testing.T) {
	out := printed(t, sample(), false)
	if strings.Count(out, judgedRow) != 1 {
		t.Errorf("more than one table:\n%s", out)
	}
	checkLines(t, out)
	for _, want := range []string{
		"                              6.1              6.1-nobtf",
		"\n (root)                       128 +12 skipped  128 +12 skipped", "\n ...al/a/very/deep/directory  128", "not listed", "newest",
		"bzImage: Linux 6.18.44, not listed in vmtest/expect.yaml: judged by 6.12 for trunkline's own",
		"no failing cell on 5 kernels\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestRedCellsAreExplained(t *testing.T) {
	out := printed(t, broken(sample()), false)
	checkLines(t, out)
	for _, want := range []string{
		"\n6.1: marks MISSING\n    program tl_mark: unknown func bpf_tcp_nothing#999, said at length",
		"    remedy: needs Linux 6.6 or later\n",
		"\n6.12: loader 2 FAILED\n",
		"TestStream in functional failed after 3.1 s\n        ... 36 lines before ...\n",
		"        red after 5us\n",
		"        panic: ouch\n        goroutine\n",
		"\n6.12: no-ipv6 FAILED\n    no sign of life for 60 s\n    kernel log: /var/cache/deep/",
		"3 failing cells: 6.1: marks; 6.12: ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "line 3 ") || strings.Count(out, "goroutine") > outputLines {
		t.Errorf("too much of an output is printed:\n%s", out)
	}
}

// checkLines holds every line to the width, but for paths, and to ASCII.
func checkLines(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) > tableWidth && !strings.Contains(line, "kernel log: ") {
			t.Errorf("%d characters: %s", len(line), line)
		}
		if line != ascii(line) || strings.HasSuffix(line, " ") {
			t.Errorf("not plain: %q", line)
		}
	}
}

// The words give way first: five kernels that all have skips still fit.
func TestFiveKernelsWithSkipsFitInOneTable(t *testing.T) {
	results := sample()
	for i, feature := range []string{"tcx", "btf", "splice", "splice", "splice"} {
		results[i].Stages[0].Tests = sampleTests(140, feature)
	}
	out := printed(t, results, false)
	checkLines(t, out)
	if strings.Count(out, judgedRow) != 1 || !strings.Contains(out, " 128 +12  ") || !strings.Contains(out, "tests: N passed, or N +M") {
		t.Errorf("%s", out)
	}
}

func TestManyKernelsTakeSeveralTables(t *testing.T) {
	results := sample()
	for i := range 6 {
		r := results[0]
		r.Kernel = fmt.Sprintf("own-kernel-of-a-long-name-%d", i)
		results = append(results, r)
	}
	out := printed(t, results, false)
	checkLines(t, out)
	if n := strings.Count(out, judgedRow); n != 3 {
		t.Errorf("%d tables:\n%s", n, out)
	}
}

func TestColoursAreOnlyWhereTheyAreWanted(t *testing.T) {
	if out := printed(t, broken(sample()), false); strings.Contains(out, "\x1b") {
		t.Errorf("colours in\n%q", out)
	}
	out := printed(t, broken(sample()), true)
	if !strings.Contains(out, red+"MISSING") || !strings.Contains(out, green+"on") || !strings.Contains(out, grey+"off") {
		t.Errorf("no colours in\n%q", out)
	}
	for _, colour := range []string{bold, red, green, grey, reset} {
		out = strings.ReplaceAll(out, colour, "")
	}
	plain := printed(t, broken(sample()), false)
	trim := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		return strings.Join(lines, "\n")
	}
	if trim(out) != plain {
		t.Errorf("colours change the text:\n%s\nwant\n%s", out, plain)
	}
}

func TestPrintingNothing(t *testing.T) {
	if out := printed(t, nil, false); out != "no kernel was run\n" {
		t.Errorf("%q", out)
	}
	out := printed(t, []Result{{Kernel: "6.1", Err: "no package of this kernel is to be had"}}, false)
	if !strings.Contains(out, "6.1: boot FAILED\n    no package of this kernel") || !strings.Contains(out, " marks          ?\n") {
		t.Errorf("%s", out)
	}
}
