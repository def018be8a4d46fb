// SPDX-License-Identifier: Apache-2.0

// Package cc is `trunkline bench cc`: what congestion controls carry over an emulated path, trunkline's beside the kernel's
// own with the same losses, and the automatic choice beside the best of them.
package cc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// experiment is one run of the bench.
type experiment struct {
	settings
	plan    *plan
	session *bench.Session
	dir     string
	out     *bench.RowFile
	rows    []row
	courses []trace  // of flows that are drawn
	notes   []string // for the reader of the tables
	autoOff string   // why the automatic choice was not run
	began   time.Time
	done    int
	failed  int // runs in a row
}

// maxFailures of runs in a row end the bench: then something is wrong that more of them would not tell better.
const maxFailures = 3

// New is the bench for the catalogue.
func New() *bench.Bench {
	e := &experiment{}
	return &bench.Bench{
		Name:  "cc",
		Short: "What congestion controls carry over an emulated path, ours beside the kernel's",
		Long: "cc sends over an emulated path, from one network namespace to another, with one congestion control after the other, and\n" +
			"says what arrived: trunkline's own, the kernel's of the same name where there is one, and the agent's automatic choice\n" +
			"(auto). Losses are drawn by packet number from --seed and the run's number, so that a pair differs by nothing else; a\n" +
			"second turn of the kernel's own shows how much two equal runs differ. The whole delay lies on the way there, and only\n" +
			"data is lost. Each round takes all of them in an order drawn anew.\n\n" +
			"The path is netem's where this kernel has it, and trunkline's own emulator elsewhere. The defaults are the grid of a\n" +
			"study of twelve TCP variants over LTE, which takes a day: pick cells and algorithms, or --quick. What the kernel has as a\n" +
			"module is loaded, and unloaded again. All is removed at the end, also on Ctrl-C.",
		Example: "  sudo trunkline bench cc --quick\n" +
			"  sudo trunkline bench cc --delay 20ms,50ms --loss 1e-3,1e-2 --out results\n" +
			"  sudo trunkline bench cc --delay 50ms --loss 1e-2 --algorithms auto,illinois,cubic --without bbr\n" +
			"  sudo trunkline bench cc --bytes 101625856 --delay 50ms --loss 1e-2 --runs 1\n" +
			"  sudo trunkline bench cc --trace Verizon-LTE-short.down --trace-up Verizon-LTE-short.up\n" +
			"  sudo trunkline bench cc --beside cubic --algorithms auto,illinois --loss 0 --delay 20ms --time 30s\n" +
			"  sudo trunkline bench cc --change rate=10Mbit,loss=1e-3@20s --change loss=0@40s --time 60s --delay 50ms --loss 0\n" +
			"  sudo trunkline bench cc --long --out results",
		NeedRoot: true,
		Flags:    e.flags,
		Check:    e.check,
		Run:      e.run,
	}
}

func (e *experiment) run(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
	e.session, e.began = s, time.Now()
	for _, dir := range labagent.RemoveStale(ctx, "bench", s.Binary) {
		s.Progress.Notef("removed %s, which a killed bench left", dir)
	}
	if e.dir, err = labagent.MakeDir("bench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(e.dir)) }()
	if s.Binary, err = labagent.CopyBinary(s.Binary, e.dir); err != nil {
		return nil, err
	}
	if e.plan, err = e.makePlan(s.Quick, s.Seed); err != nil {
		return nil, err
	}
	held, err := holdAlgorithms(e.dir, e.plan)
	defer func() { err = errors.Join(err, held.release()) }()
	if err != nil {
		return nil, err
	}
	if e.out, err = bench.OpenRows(s.Out, row{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.out.Close()) }()
	e.say()
	for i := range e.plan.cells {
		if err := e.cell(ctx, &e.plan.cells[i], s.Seed+uint64(i)); err != nil {
			return nil, err
		}
	}
	if len(e.rows) == 0 {
		return nil, errors.New("no run gave a result: " + e.lastNote())
	}
	return e.report(), nil
}

// say tells beforehand what is left out, and how long it takes.
func (e *experiment) say() {
	e.notes = append(e.notes, e.plan.notes...)
	for _, n := range e.notes {
		e.session.Progress.Notef("%s", n)
	}
	if each := e.plan.duration; each > 0 && !e.session.Quick {
		total := time.Duration(e.plan.all()) * (each + time.Second)
		e.session.Progress.Notef("%s of %s over %s: about %s", plural(e.plan.all(), "run"), units.FormatDuration(each), plural(len(e.plan.cells), "path"),
			units.FormatDuration(total.Round(time.Second)))
	}
}

func (e *experiment) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.notes = append(e.notes, text)
	e.session.Progress.Notef("%s", text)
}

func (e *experiment) lastNote() string {
	if len(e.notes) == 0 {
		return "there was nothing to run"
	}
	return e.notes[len(e.notes)-1]
}

// cell lays one path and takes every algorithm over it, round after round, in orders drawn by the seed.
func (e *experiment) cell(ctx context.Context, c *cell, seed uint64) (err error) {
	w := &world{e: e, cell: c}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.open(ctx); err != nil {
		return err
	}
	start, rounds := time.Now(), 0
	for run, turn := range bench.Interleave(seed, e.plan.runs, len(e.plan.subjects)) {
		// A machine that is slow has fewer rounds in its minute.
		took := time.Since(start)
		if e.session.Quick && rounds > 0 && took+took/time.Duration(rounds) > quickTime/time.Duration(len(e.plan.cells)) {
			e.note("%s: %d of %d rounds are enough for --quick", c, rounds, e.plan.runs)
			break
		}
		for _, n := range turn {
			if err := e.once(ctx, w, &e.plan.subjects[n], run+1); err != nil {
				return err
			}
		}
		rounds++
	}
	return nil
}

// quickTime bounds what --quick takes: no round is begun that would probably not end by then.
const quickTime = 48 * time.Second

// once is one run. One that fails is noted and left out.
func (e *experiment) once(ctx context.Context, w *world, s *subject, run int) error {
	if s.auto() && e.autoOff != "" {
		return nil
	}
	e.session.Progress.Step(e.done, e.plan.all(), "%s, run %d: %s%s", w.cell, run, s, e.left())
	e.done++
	r, t, err := w.run(ctx, s, run)
	var off errOff
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &off):
		e.autoOff = off.why
		e.note("auto was not run: %s", off.why)
		return nil
	case err != nil:
		if e.failed++; e.failed >= maxFailures {
			return fmt.Errorf("%s, run %d: %s: %w", w.cell, run, s, err)
		}
		e.note("%s, run %d: %s failed and is left out: %v", w.cell, run, s, err)
		return nil
	}
	e.failed = 0
	e.rows = append(e.rows, r)
	if e.plan.drawn(w.cell, s, run) {
		e.courses = append(e.courses, *t)
	}
	return e.out.Add(r)
}

// left estimates from what the runs so far took.
func (e *experiment) left() string {
	if e.done == 0 || e.session.Quick {
		return ""
	}
	each := time.Since(e.began) / time.Duration(e.done)
	return "; about " + units.FormatDuration((each * time.Duration(e.plan.all()-e.done)).Round(time.Second)) + " left"
}
