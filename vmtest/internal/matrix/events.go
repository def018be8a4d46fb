// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of `go test -json` or test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// ParseTests reads the events of `go test -json` or test2json, of one package or of several one after the other.
//
// Nothing is good that did not say so: a test that was started and has no verdict failed, and so did a package whose process
// ended without one, or badly although no test failed; such a failure is called PackageItself. Lines that are no events (a
// kernel's messages, a line cut short) are kept with the output of the package before them. What was read is returned
// also with an error of r; an input with lines but without any event is an error.
func ParseTests(r io.Reader) ([]Test, error) {
	var p eventParser
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		p.line(line)
		if err == nil {
			continue
		}
		tests := p.end()
		switch {
		case !errors.Is(err, io.EOF):
			return tests, fmt.Errorf("reading test events: %w", err)
		case p.seen == 0 && p.stray != "":
			return nil, fmt.Errorf("reading test events: there is none; the first line is %q; "+
				"run the tests with -test.v=test2json and pass their output through `go tool test2json -p PACKAGE`", p.stray)
		}
		return tests, nil
	}
}

// Ended adds what the exit of a test binary says beyond its events: a code other than 0, or an error, is a failure of the
// package unless a test of it failed anyway.
func Ended(tests []Test, pkg string, exitCode int, why string) []Test {
	if exitCode == 0 && why == "" {
		return tests
	}
	for _, t := range tests {
		if t.Package == pkg && t.Outcome == Fail {
			return tests
		}
	}
	output := fmt.Sprintf("the process ended with code %d", exitCode)
	if why != "" {
		output += ": " + why
	}
	return append(tests, Test{Package: pkg, Name: PackageItself, Outcome: Fail, Output: output + "\n"})
}

// eventParser holds the packages that have no verdict yet.
type eventParser struct {
	seen    int    // events
	stray   string // the first line that was no event
	running []*packageRun
	last    *packageRun
	done    []Test
}

func (p *eventParser) line(line []byte) {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return
	}
	var e event
	if text[0] != '{' || json.Unmarshal(text, &e) != nil || e.Action == "" {
		if p.stray == "" {
			p.stray = string(text[:min(len(text), 200)])
		}
		if p.last != nil {
			p.last.output.add(string(line))
		}
		return
	}
	p.seen++
	p.event(e)
}

func (p *eventParser) event(e event) {
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ") // "path [path.test]"
	}
	run := p.of(e.Package)
	if e.Test != "" {
		run.event(e)
		return
	}
	switch e.Action {
	case "output", "build-output":
		run.output.add(e.Output)
	case Pass, Fail, Skip:
		p.finish(run, e.Action)
	}
}

// of returns the run of a package; one that has its verdict and starts again is a new run.
func (p *eventParser) of(pkg string) *packageRun {
	if p.last != nil && p.last.pkg == pkg {
		return p.last
	}
	for _, run := range p.running {
		if run.pkg == pkg {
			p.last = run
			return run
		}
	}
	p.last = &packageRun{pkg: pkg, byName: map[string]*testRun{}}
	p.running = append(p.running, p.last)
	return p.last
}

func (p *eventParser) finish(run *packageRun, verdict string) {
	p.done = append(p.done, run.tests(verdict)...)
	for i, other := range p.running {
		if other == run {
			p.running = append(p.running[:i:i], p.running[i+1:]...)
			break
		}
	}
	p.last = nil
}

// end closes what has no verdict.
func (p *eventParser) end() []Test {
	for len(p.running) > 0 {
		p.finish(p.running[0], "")
	}
	return p.done
}
