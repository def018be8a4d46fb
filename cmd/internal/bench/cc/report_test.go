// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
)

// made is an experiment with what runs would have found: wide figures everywhere.
func made(t *testing.T, args ...string) *experiment {
	t.Helper()
	e := &experiment{settings: *parsed(t, args...), session: &bench.Session{}}
	e.replace(false)
	cells, err := e.cells()
	if err != nil {
		t.Fatal(err)
	}
	e.plan = &plan{cells: cells, runs: e.runs, duration: e.duration, emulation: emulationNetem, candidates: []string{"tl_illinois", "bbr"}}
	e.plan.subjects, e.plan.notes = e.subjects(machine)
	e.plan.beside = besideName(e.beside, e.plan.subjects)
	for i := range cells {
		for n := range e.plan.subjects {
			for run := 1; run <= e.runs; run++ {
				e.madeRun(t, &cells[i], &e.plan.subjects[n], run)
			}
		}
	}
	return e
}

func (e *experiment) madeRun(t *testing.T, c *cell, s *subject, run int) {
	t.Helper()
	one := sent{Bytes: 5e6, Congestion: "tl_highspeed", First: "bbr", Retransmits: 123456, RTOs: 3, MinRTTUs: 123456}
	for at := range int64(100) {
		one.Samples = append(one.Samples, sample{AtUs: at * 10_000, Cwnd: uint32(10 + at), SRTTUs: 123456})
	}
	f := flows{subject: s, cell: c, run: run, seed: lossSeed(1, run), got: map[uint32]received{}}
	for i := range e.flowCount {
		one.ID = uint32(i)
		f.measured = append(f.measured, one)
		f.got[one.ID] = received{ID: one.ID, Bytes: 5e6, InTime: uint64(5e6 + 1e5*i), LastNs: 1e9, Bins: []uint64{1e5, 2e5, 3e5}}
		if e.beside != "" {
			one.ID += besideID
			f.beside = append(f.beside, one)
			f.got[one.ID] = received{ID: one.ID, Bytes: 5e6, InTime: 4e6, LastNs: 1e9}
		}
	}
	r, course, err := e.result(&f)
	if err != nil {
		t.Fatal(err)
	}
	e.rows = append(e.rows, r)
	if e.plan.drawn(c, s, run) {
		e.courses = append(e.courses, *course)
	}
}

func TestReports(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a-measured-link-of-some-length.down")
	if err := os.WriteFile(path, []byte("1\n2\n2\n4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--algorithms illinois,bbr,auto,vegas":                                                   "illinois   ours      1.00",
		"--algorithms illinois,bbr,reno,auto --delay 50ms --loss 1e-2 --rate 5Mbit,40Mbit,1Gbit": "tl_illinois   1.00   1.00  tl_highspeed",
		"--algorithms illinois,auto --beside reno --delay 50ms --loss 0":                         "BY ITS OWN is what reno got here",
		"--algorithms illinois --flows 3 --delay 50ms --loss 0 --bytes 5000000":                  "3 flows together",
		"--algorithms illinois,reno,auto --trace " + path:                                        "The link of a-measured-link-of-s,",
	} {
		e := made(t, strings.Fields(args)...)
		r := e.report()
		benchtest.CheckRows(t, r.Rows)
		benchtest.CheckTables(t, r.Tables)
		var text strings.Builder
		for _, table := range r.Tables {
			table.Write(&text)
		}
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: there is no %q in\n%s", args, want, &text)
		}
		for _, p := range r.Plots {
			if err := p.Draw(plot.New()); err != nil {
				t.Errorf("%s: %s: %v", args, p.Name, err)
			}
			if strings.ContainsAny(p.Name, " /,") {
				t.Errorf("%s: a plot is called %q", args, p.Name)
			}
		}
	}
}

func TestPlots(t *testing.T) {
	names := func(e *experiment) string {
		var all []string
		for _, p := range e.report().Plots {
			all = append(all, p.Name)
		}
		return strings.Join(all, " ")
	}
	got := names(made(t, "--algorithms", "illinois,reno", "--delay", "20ms,50ms", "--loss", "1e-3,1e-2", "--runs", "1"))
	want := "goodput-delay-40Mbit-loss-1e-3 goodput-delay-40Mbit-loss-1e-2 goodput-loss-40Mbit-20ms goodput-loss-40Mbit-50ms " +
		"cwnd-run1 throughput-run1 cwnd-illinois"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := names(made(t, "--algorithms", "illinois", "--long", "--runs", "2")); got != "cwnd-run1 throughput-run1 cwnd-run2 throughput-run2" {
		t.Errorf("got %s", got)
	}
}

func TestThroughput(t *testing.T) {
	l := (&trace{bins: []uint64{125_000, 125_000, 0, 250_000, 7}}).throughput(2)
	if len(l.X) != 2 || l.X[0] != 0.1 || l.Y[0] != 10 || l.Y[1] != 10 {
		t.Errorf("got %+v", l)
	}
}

// What a run gives, in JSON and in the table of all rows.
func TestRows(t *testing.T) {
	e := made(t, "--algorithms", "auto,illinois", "--delay", "50ms", "--loss", "1e-2", "--time", "1s", "--runs", "1")
	text, err := json.Marshal(e.rows[0])
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"algorithm": "auto", "source": "tl", "rate_Mbps": 40.0, "delay_ms": 50.0, "loss": 0.01, "run": 1.0, "goodput_Mbps": 40.0,
		"retransmits": 123456.0, "p95_rtt_ms": 123.5, "rtos": 3.0, "chosen": "tl_highspeed", "chosen_first": "bbr", "seconds": 1.0,
		"bytes": 5e6, "emulation": "netem", "flows": 1.0,
	} {
		if fields[name] != want {
			t.Errorf("%s is %v, want %v", name, fields[name], want)
		}
	}
	for _, name := range []string{"beside", "beside_goodput_Mbps", "jain", "trace", "change"} {
		if v, ok := fields[name]; ok {
			t.Errorf("%s is %v in a run that has none", name, v)
		}
	}
	names, values := bench.RowNames(row{}), bench.RowValues(e.rows[1])
	if len(names) != len(values) || names[0] != "algorithm" || values[0] != "illinois" || values[3] != "50" {
		t.Errorf("%v: %v", names, values)
	}
}

// A flow that the receiver does not know, or bytes that are lost, are no result.
func TestNoResult(t *testing.T) {
	e := &experiment{settings: settings{bytes: 100}, plan: &plan{}}
	if _, err := e.carried([]sent{{ID: 1}}, nil); err == nil {
		t.Error("an unknown flow is taken")
	}
	if _, err := e.carried([]sent{{ID: 1, Bytes: 100}}, map[uint32]received{1: {Bytes: 99}}); err == nil || err.Error() != "100 bytes were sent, the receiver took 99" {
		t.Errorf("got %v", err)
	}
	c, err := e.carried([]sent{{ID: 1, Bytes: 100, RTOs: -1}}, map[uint32]received{1: {Bytes: 100, LastNs: int64(time.Second)}})
	if err != nil || c.bytes != 100 || c.rtos != -1 || c.seconds != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAutoConfig(t *testing.T) {
	text := strings.Join(autoConfig([]string{"tl_illinois", "bbr"}, "10.81.2.0/24"), "\n")
	for _, want := range []string{"auto: {candidates: [tl_illinois, bbr]}", "remote: 10.81.2.0/24, ports: [5202], congestion: auto"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}
