// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// expectation writes and loads a file.
func expectation(t *testing.T, text string) (*Expect, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "expect.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadExpect(path)
}

func mustExpect(t *testing.T, text string) *Expect {
	t.Helper()
	e, err := expectation(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const someKernels = `
kernels:
  6.1: [rules, telemetry, splice, btf]
  6.1-nobtf: [rules, ipv6]
  6.10: [rules, marks, btf, tcx] # not 6.1 again
  newest: [rules, marks, pins, btf]
stages:
  functional: [exact-time]
  no-ipv6: [ipv6, steering-ipv6]
`

func TestHowAKernelIsJudged(t *testing.T) {
	e := mustExpect(t, someKernels)
	for _, c := range []struct {
		kernel, release string
		how, by, names  string
	}{
		{"6.1", "6.1.0-57-amd64", Listed, "6.1", "rules telemetry splice btf"},
		{"6.1-nobtf", "6.1.192", Listed, "6.1-nobtf", "rules ipv6"},
		{"6.10", "6.10.1", Listed, "6.10", "rules marks btf tcx"},
		{"7.3", "7.3.4+deb13-amd64", AsNewest, newest, "rules marks pins btf"},
		{"6.12", "", AsNewest, newest, "rules marks pins btf"},
		{"6.6", "6.6.1", Unlisted, "6.1", "rules telemetry splice"}, // between two: the product's features of the older
		{"5.15", "5.15.0", Unlisted, "", ""},
		{"bzImage", "6.18.44", Unlisted, "6.10", "rules marks"}, // never the newest
		{"bzImage", "", Unlisted, "", ""},
		{"host", "6.1.7", Unlisted, "6.1", "rules telemetry splice"},
		{"7.3-own", "7.3.4", Unlisted, "6.10", "rules marks"},
		{"newest", "7.3.4", Unlisted, "6.10", "rules marks"},
	} {
		j := e.of(c.kernel, c.release)
		if j.how != c.how || j.by != c.by || strings.Join(j.names, " ") != c.names {
			t.Errorf("%s (%s): %s by %q: %v; want %s by %q: %s", c.kernel, c.release, j.how, j.by, j.names, c.how, c.by, c.names)
		}
	}
}

func TestExpectationsAreReadStrictly(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":       {"kernels:\n  6.1: [rules]\nkernel: x\n", `expect.yaml:3: unknown key "kernel"; there are kernels and stages`},
		"an unknown feature":   {"kernels:\n  6.1:\n  - rules\n  - ruels\n", `:4: no feature is called "ruels"; there are steering-ipv4, `},
		"a feature twice":      {"kernels:\n  6.1: [rules,\n    rules]\n", ":3: rules is given twice for 6.1; remove one"},
		"a kernel twice":       {"kernels:\n  6.1: [rules]\n  \"6.1\": []\n", ""},
		"no list":              {"kernels:\n  6.1: rules\n", ":2: the value of 6.1 must be a list of features"},
		"nothing":              {"kernels:\n  6.1:\n", ":2: the value of 6.1 must be a list"},
		"no mapping":           {"kernels: [6.1]\n", "kernels must be a mapping"},
		"a strange kernel":     {"kernels:\n  bzImage: []\n", `:2: "bzImage" is no kernel; write a version`},
		"an unknown one taken": {"kernels:\n  6.1: []\nstages:\n  exact: [time]\n", `:4: no feature is called "time"`},
		"an empty file":        {"", "one document"},
		"no kernels":           {"stages: {exact: []}\n", "no kernel is listed; add `kernels:`"},
		"two documents":        {"kernels: {6.1: []}\n---\nkernels: {6.2: []}\n", "one document"},
		"no YAML":              {"kernels:\n  6.1: [rules\n", "not valid YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := expectation(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant: %s", err, c.want)
			}
		})
	}
	_, err := expectation(t, "kernels:\n  6.1: [ruels]\nstage: {}\n")
	if err == nil || strings.Count(err.Error(), "expect.yaml:") != 2 {
		t.Errorf("not all problems are named: %v", err)
	}
	if _, err := LoadExpect("/does/not/exist.yaml"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestTheProjectsExpectations(t *testing.T) {
	e, err := LoadExpect("../../expect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, kernel := range []string{"6.1", "6.1-nobtf", "6.12", newest} {
		if len(e.kernels[kernel]) == 0 {
			t.Errorf("nothing is expected of %s", kernel)
		}
	}
	if j := e.of("7.3", "7.3.4"); j.how != AsNewest {
		t.Errorf("7.3 is judged %s by %s", j.how, j.by)
	}
}

func TestEveryFeatureSaysWhatItsAbsenceMeans(t *testing.T) {
	for i, f := range features {
		if f.without == "" || f.liftedBy == "" || f.name != ascii(f.name) {
			t.Errorf("%s: %+v", f.name, f)
		}
		if slices.Index(featureNames(), f.name) != i {
			t.Errorf("%s is there twice", f.name)
		}
	}
}
