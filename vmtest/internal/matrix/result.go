// SPDX-License-Identifier: Apache-2.0

// Package matrix judges what the integration tests found on several kernels against vmtest/expect.yaml, prints it as one
// table of features and suites by kernel, and keeps docs/kernels.md.
package matrix

// Feature is what one feature of the product or of the kernel is on one kernel.
type Feature struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	Detail string `json:"detail"`           // what is on, or why it is not
	Remedy string `json:"remedy,omitempty"` // what the person can do about it
}

// The outcomes of a test.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Test is how one test ended. A subtest is part of its parent, unless it was skipped: then it is a Test of its own, so that
// its reason is judged.
type Test struct {
	Package string  `json:"package"` // import path
	Name    string  `json:"name"`    // PackageItself where the process failed, not a test
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Output  string  `json:"output,omitempty"` // of failures alone; the middle of a very long one is left out
	Skip    string  `json:"skip,omitempty"`   // the reason of a skip, in one line
}

// PackageItself is the name of the Test that stands for a package whose process failed outside of any test.
const PackageItself = "(package)"

// Stage is one boot of a kernel and the tests run in it.
type Stage struct {
	Name    string  `json:"name"` // functional, exact, hybrid, no-ipv6 and so on
	Tests   []Test  `json:"tests"`
	Err     string  `json:"err,omitempty"` // the machine died, was too slow, a binary did not start; empty: it ended well
	Seconds float64 `json:"seconds"`
	Log     string  `json:"log,omitempty"` // path of the kernel log
}

// Result is all that was found on one kernel.
type Result struct {
	Kernel   string    `json:"kernel"`  // its name in the matrix: 6.1, 6.1-nobtf, host, bzImage
	Release  string    `json:"release"` // uname -r
	Features []Feature `json:"features"`
	Stages   []Stage   `json:"stages"`
	Err      string    `json:"err,omitempty"` // it could not be had or did not boot
}
