// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// plan is what is run where, in full.
type plan struct {
	cells      []cell
	subjects   []subject
	runs       int
	duration   time.Duration // of each run; 0: bytes count
	candidates []string      // of the automatic choice
	emulation  string        // netem or lab
	beside     string        // name in the kernel of the algorithm beside; "": none
	changes    []change
	seed       uint64
	notes      []string // what is left out, and why
}

func (p *plan) all() int { return len(p.cells) * len(p.subjects) * p.runs }

// cell is one path.
type cell struct {
	rate    uint64 // bit/s; of a trace the mean
	trace   string // path of the file; "": a fixed rate
	traceUp string // of the way back; "": as the way there
	delay   time.Duration
	loss    float64
}

func (c *cell) String() string { return c.rateText() + ", " + c.delayText() + ", loss " + c.lossText() }

func (c *cell) rateText() string {
	if c.trace != "" {
		return c.traceName()
	}
	return units.FormatRate(float64(c.rate))
}

// traceName is the file's, without what all of them end with.
func (c *cell) traceName() string {
	if c.trace == "" {
		return ""
	}
	name := strings.TrimSuffix(filepath.Base(c.trace), ".down")
	return name[:min(len(name), 20)]
}

func (c *cell) delayText() string {
	return strconv.FormatFloat(c.delay.Seconds()*1e3, 'g', 4, 64) + " ms"
}

// lossText writes 1e-2, not 0.01 or 1e-02.
func (c *cell) lossText() string {
	if c.loss == 0 {
		return "0"
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(c.loss, 'e', -1, 64), "e-")
	return mantissa + "e-" + strings.TrimLeft(exponent, "0")
}

// The sources of an algorithm, beside which those end in again that are a second turn of the kernel's own.
const again = "-again"

// subject is an algorithm of one source.
type subject struct {
	algorithm string // without tl_
	source    string
	name      string // in the kernel; "": left to the agent
	load      bool   // it is a module that is not loaded
}

func (s *subject) auto() bool { return s.algorithm == autoName }

func (s *subject) ours() bool { return s.source == string(cc.Ours) }

func (s *subject) String() string {
	if s.auto() {
		return autoName
	}
	return s.name + map[bool]string{true: " again"}[strings.HasSuffix(s.source, again)]
}

func (s *settings) makePlan(quick bool, seed uint64) (*plan, error) {
	s.replace(quick)
	p := &plan{runs: s.runs, duration: s.duration, seed: seed}
	var err error
	if p.changes, err = parseChanges(s.changes); err != nil {
		return nil, err
	}
	if err := s.checkChangesFit(p); err != nil {
		return nil, err
	}
	if p.cells, err = s.cells(); err != nil {
		return nil, err
	}
	entries, err := cc.List()
	if err != nil {
		return nil, err
	}
	if p.emulation, err = s.pickEmulation(); err != nil {
		return nil, err
	}
	p.candidates = s.chosenFrom()
	p.subjects, p.notes = s.subjects(entries)
	if p.beside = besideName(s.beside, p.subjects); s.beside != "" && p.beside == "" {
		return nil, fmt.Errorf("--beside %s: neither trunkline nor this kernel has it, or --without or --sources leaves it out", s.beside)
	}
	if len(p.subjects) == 0 {
		return nil, errors.New("no algorithm is left to run; `trunkline cc` lists what there is")
	}
	return p, nil
}

func (s *settings) checkChangesFit(p *plan) error {
	for _, c := range p.changes {
		if c.rate > 0 && len(s.traces) > 0 {
			return errors.New("--change rate= and --trace exclude each other; the trace is the rate")
		}
		if p.duration > 0 && c.at >= p.duration {
			return fmt.Errorf("--change at %v comes after the end of a run, at %v", c.at, p.duration)
		}
	}
	return nil
}

// cells are all paths, losses within delays within rates.
func (s *settings) cells() ([]cell, error) {
	rates, delays, losses, err := s.grid()
	if err != nil {
		return nil, err
	}
	var ways []cell
	for _, r := range rates {
		ways = append(ways, cell{rate: r})
	}
	if len(s.traces) > 0 {
		ways = nil
	}
	for i, path := range s.traces {
		c := cell{trace: path}
		if c.rate, err = meanRate(path); err != nil {
			return nil, err
		}
		if len(s.tracesUp) > 0 {
			c.traceUp = s.tracesUp[i]
		}
		ways = append(ways, c)
	}
	var cells []cell
	for _, c := range ways {
		for _, c.delay = range delays {
			for _, c.loss = range losses {
				cells = append(cells, c)
			}
		}
	}
	return cells, nil
}

// chosenFrom is what the automatic choice may choose from.
func (s *settings) chosenFrom() []string {
	names := s.candidates
	if len(names) == 0 {
		names = choice.DefaultCandidates
	}
	return slices.DeleteFunc(slices.Clone(names), s.leftOut)
}

// leftOut says whether --without names an algorithm, whosever it is.
func (s *settings) leftOut(name string) bool {
	return slices.ContainsFunc(s.without, func(w string) bool { return w == name || w == bare(name) })
}

// subjects are the algorithms that were asked for, from whom they can be had.
func (s *settings) subjects(entries []cc.Entry) (list []subject, notes []string) {
	find := func(name string) *cc.Entry {
		i := slices.IndexFunc(entries, func(e cc.Entry) bool { return e.Name == name })
		if i < 0 {
			return nil
		}
		return &entries[i]
	}
	wanted := slices.Clone(s.algorithms)
	if s.beside != "" {
		wanted = append(wanted, s.beside) // what it gets beside itself is what the others are held against
	}
	var seen []string
	for _, name := range wanted {
		if s.leftOut(name) || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		if name == autoName {
			list = append(list, subject{algorithm: autoName, source: string(cc.Ours)})
			continue
		}
		found := s.sourcesOf(name, find)
		if len(found) == 0 {
			notes = append(notes, fmt.Sprintf("%s is not run: neither trunkline nor this kernel has it, or --sources leaves it out", name))
		}
		for _, f := range found {
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return list, notes
}

// besideName is what the flow beside has: the kernel's own of the name where there is one.
func besideName(beside string, subjects []subject) (name string) {
	for _, s := range subjects {
		if s.name == beside || name == "" && s.algorithm == bare(beside) {
			name = s.name
		}
	}
	return name
}

func (s *settings) sourcesOf(name string, find func(string) *cc.Entry) (found []subject) {
	only := strings.HasPrefix(name, "tl_")
	if e := find("tl_" + bare(name)); e != nil && slices.Contains(s.sources, "tl") {
		found = append(found, subject{algorithm: bare(name), source: string(cc.Ours), name: e.Name})
	}
	e := find(name)
	if e == nil || only || !slices.Contains(s.sources, "kernel") {
		return found
	}
	kernels := subject{algorithm: name, source: string(e.Source), name: name, load: !e.Loaded}
	pair := len(found) > 0
	found = append(found, kernels)
	if s.noise && pair && s.runs >= noiseRuns && s.beside == "" {
		kernels.source += again
		found = append(found, kernels)
	}
	return found
}

// drawn says whether a run's course is kept: the first of what is drawn as a trace, where the study drew it.
func (p *plan) drawn(c *cell, s *subject, run int) bool {
	if !slices.Contains(longNames, s.algorithm) && !s.auto() || strings.HasSuffix(s.source, again) || *c != p.drawnCell() {
		return false
	}
	return run == 1 || p.duration >= longTime
}

// drawnCell is the path on which algorithms differ most: the longest with the most losses.
func (p *plan) drawnCell() cell {
	best := p.cells[0]
	for _, c := range p.cells {
		if c.loss > best.loss || c.loss == best.loss && c.delay > best.delay {
			best = c
		}
	}
	return best
}

// lossSeed is that of a run: the same for every algorithm and every path.
func lossSeed(seed uint64, run int) uint64 {
	x := seed*0x9e3779b97f4a7c15 + uint64(run)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x >> 32 // so that JSON readers without 64-bit numbers have it exactly
}
