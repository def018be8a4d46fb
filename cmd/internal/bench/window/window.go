// SPDX-License-Identifier: Apache-2.0

// Package window is `trunkline bench window`: how soon a connection fills a long path and how full it keeps it, with what the
// kernel does by itself, what experts set by hand, and the agent's windows, `auto` and on a reserved path.
package window

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// experiment is one run of the bench.
type experiment struct {
	settings
	session *bench.Session
	cells   []cell
	modes   []mode
	dir     string
	maxima  *maxima
	modules []string // loaded for the bench's sake
	profile string   // congestion control of the sysctl profile
	stock   string   // congestion control of a kernel that nobody has touched
	out     *bench.RowFile
	rows    []row
	courses []course // of first runs
	notes   []string
	off     map[string]string // mode to why it cannot be had here
	began   time.Time
	done    int
	// reserved counts agents with reservations: each is a new one, which finds none of an earlier one's.
	reserved int
	failed   int // runs in a row
	// discarded attempts of all runs, also of those that are left out in the end.
	discarded int
}

const (
	// maxFailures of runs in a row end the bench: then something is wrong that more of them would not tell better.
	maxFailures = 3
	// maxAttempts is how often a run is made until the emulator keeps up.
	maxAttempts = 6
)

// New is the bench for the catalogue.
func New() *bench.Bench {
	e := &experiment{off: map[string]string{}}
	return &bench.Bench{
		Name:  "window",
		Short: "How soon a long path is full, by the kernel, by hand, and on a reserved path",
		Long: "window sends over an emulated path, 1 Gbit/s x 135 ms by default, from one network namespace to another, and says when the\n" +
			"receiver first got 90 % of what the path carries, and how much it got in 10 and 30 s. It does so with the kernel's\n" +
			"defaults (kernel), the six lines of sysctl that experts set (sysctl), these and the initial windows of a route\n" +
			"(initcwnd), buffers of one bandwidth-delay product that the program sets itself (bdp), and with real agents at both\n" +
			"ends: windows that tune themselves (auto) and a reservation of the path (reserved). Each round takes all of them in an\n" +
			"order drawn by --seed.\n\n" +
			"The rate is that of the link layer, with 14 bytes of Ethernet around each packet, and the queue is drop-tail. Where the\n" +
			"emulator was late by more than the queue holds, the run says nothing: it is discarded and made again. All is removed at\n" +
			"the end, also on Ctrl-C; what a killed bench has changed the next one changes back.",
		Example: "  sudo trunkline bench window --quick\n" +
			"  sudo trunkline bench window --out results\n" +
			"  sudo trunkline bench window --mode sysctl,auto,reserved --streams 1,10 --queue 0.1 --mtu 9000 --seconds 10\n" +
			"  sudo trunkline bench window --rate 100Mbit --rtt 300ms --runs 5 --json",
		NeedRoot: true,
		Flags:    e.flags,
		Check:    e.check,
		Run:      e.run,
	}
}

func (e *experiment) run(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
	e.session, e.began = s, time.Now()
	e.replace(s.Quick)
	if e.cells, err = e.plan(); err != nil {
		return nil, err
	}
	e.modes = e.chosen()
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
	if e.maxima, err = openMaxima(e.dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.maxima.close(), e.unload()) }()
	e.chooseCongestion()
	if e.out, err = bench.OpenRows(s.Out, row{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.out.Close()) }()
	e.say()
	for i := range e.cells {
		if err := e.cell(ctx, &e.cells[i], s.Seed+uint64(i)); err != nil {
			return nil, err
		}
	}
	if len(e.rows) == 0 {
		return nil, fmt.Errorf("no run gave a result: %s", e.notes[len(e.notes)-1])
	}
	return e.report(), nil
}

// all is how many runs there are.
func (e *experiment) all() int { return len(e.cells) * len(e.modes) * e.runs }

// between two runs: building the path, and starting agents.
const betweenRuns = 2 * time.Second

// say tells beforehand how long it takes.
func (e *experiment) say() {
	if e.session.Quick {
		return
	}
	total := time.Duration(e.all()) * (e.duration() + betweenRuns)
	e.session.Progress.Notef("%d runs of %s: about %s", e.all(), units.FormatDuration(e.duration()), units.FormatDuration(total.Round(time.Second)))
}

// note tells something once, now and below the table.
func (e *experiment) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(e.notes, text) {
		return
	}
	e.notes = append(e.notes, text)
	e.session.Progress.Notef("%s", text)
}

// cell takes every mode over one path, round after round, in orders drawn by the seed.
func (e *experiment) cell(ctx context.Context, c *cell, seed uint64) error {
	for run, turn := range bench.Interleave(seed, e.runs, len(e.modes)) {
		for _, n := range turn {
			if err := e.once(ctx, c, &e.modes[n], run+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// errOff is why a mode cannot be had here.
type errOff struct{ why string }

func (e errOff) Error() string { return e.why }

// errLate says that the emulator was late by more than the queue holds.
var errLate = errors.New("the emulator was late by more than the queue holds")

// once is one run, made again where the emulator was late. One that fails is noted and left out.
func (e *experiment) once(ctx context.Context, c *cell, m *mode, run int) error {
	defer func() { e.done++ }()
	if e.off[m.name] != "" {
		return nil
	}
	for discarded := 0; ; {
		if discarded == maxAttempts {
			e.note("%s, run %d: %s is left out: in %d attempts the emulator was late by more than the queue holds", c, run, m.name, discarded)
			return nil
		}
		e.session.Progress.Step(e.done, e.all(), "%s, run %d: %s", c, run, m.name)
		r, bins, err := e.measure(ctx, c, m, run)
		var off errOff
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLate):
			discarded++
			e.discarded++
			continue
		case errors.As(err, &off):
			e.off[m.name] = off.why
			e.note("%s was not run: %s", m.name, off.why)
			return nil
		case err != nil:
			if e.failed++; e.failed >= maxFailures {
				return fmt.Errorf("%s, run %d: %s: %w", c, run, m.name, err)
			}
			e.note("%s, run %d: %s is left out: %v", c, run, m.name, err)
			return nil
		}
		e.failed = 0
		r.Discarded = discarded
		e.rows = append(e.rows, r)
		if run == 1 {
			e.courses = append(e.courses, course{cell: c, mode: m.name, bins: bins})
		}
		return e.out.Add(r)
	}
}
