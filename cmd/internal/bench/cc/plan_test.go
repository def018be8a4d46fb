// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc"
)

// machine has reno built in, illinois and bbr as modules, and ours of two.
var machine = []cc.Entry{
	{Name: "tl_reno", Source: cc.Ours}, {Name: "tl_illinois", Source: cc.Ours},
	{Name: "bbr", Source: cc.Module, Loaded: true}, {Name: "illinois", Source: cc.Module}, {Name: "reno", Source: cc.BuiltIn, Loaded: true},
}

func TestSubjects(t *testing.T) {
	for args, want := range map[string]string{
		"--algorithms reno,bbr,auto":                       "reno/tl reno/builtin reno/builtin-again bbr/module auto/tl",
		"--algorithms illinois":                            "illinois/tl illinois/module+ illinois/module-again+",
		"--algorithms illinois --runs 2":                   "illinois/tl illinois/module+",
		"--algorithms illinois --noise=false":              "illinois/tl illinois/module+",
		"--algorithms illinois,tl_illinois":                "illinois/tl illinois/module+ illinois/module-again+",
		"--algorithms tl_reno":                             "reno/tl",
		"--algorithms reno,bbr --sources kernel":           "reno/builtin bbr/module",
		"--algorithms reno,bbr --sources tl":               "reno/tl; bbr is not run",
		"--algorithms reno,bbr,auto --without bbr":         "reno/tl reno/builtin reno/builtin-again auto/tl",
		"--algorithms reno,cubic":                          "reno/tl reno/builtin reno/builtin-again; cubic is not run",
		"--algorithms illinois --beside reno":              "illinois/tl illinois/module+ reno/tl reno/builtin",
		"--algorithms reno,illinois --without tl_illinois": "reno/tl reno/builtin reno/builtin-again illinois/tl illinois/module+ illinois/module-again+",
	} {
		list, notes := parsed(t, strings.Fields(args)...).subjects(machine)
		var got []string
		for _, s := range list {
			text := s.algorithm + "/" + s.source
			if s.load {
				text += "+"
			}
			got = append(got, text)
		}
		text := strings.Join(got, " ")
		for _, n := range notes {
			first, _, _ := strings.Cut(n, ":")
			text += "; " + first
		}
		if text != want {
			t.Errorf("%s:\n got %s\nwant %s", args, text, want)
		}
	}
}

func TestCandidates(t *testing.T) {
	for args, want := range map[string]string{
		"":              "[tl_illinois bbr tl_cubic]",
		"--without bbr": "[tl_illinois tl_cubic]",
		"--without illinois --candidates tl_yeah,tl_illinois,bbr": "[tl_yeah bbr]",
	} {
		if got := fmt.Sprint(parsed(t, strings.Fields(args)...).chosenFrom()); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

func TestBeside(t *testing.T) {
	list, _ := parsed(t, "--algorithms", "illinois", "--beside", "reno").subjects(machine)
	for name, want := range map[string]string{"reno": "reno", "tl_reno": "tl_reno", "illinois": "illinois", "vegas": "", "": ""} {
		if got := besideName(name, list); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestCells(t *testing.T) {
	cells, err := parsed(t, "--rate", "5Mbit,40Mbit", "--delay", "20ms,2.5ms", "--loss", "0,1e-2,2.5e-05").cells()
	if err != nil || len(cells) != 12 {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	if got := cells[0].String(); got != "5 Mbit/s, 20 ms, loss 0" {
		t.Error(got)
	}
	if got := cells[11].String(); got != "40 Mbit/s, 2.5 ms, loss 2.5e-5" {
		t.Error(got)
	}
	if got := cells[10].lossText(); got != "1e-2" {
		t.Error(got)
	}
}

func TestCellsOfTraces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.down")
	if err := os.WriteFile(path, []byte("1\n2\n2\n4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := parsed(t, "--trace", path)
	s.replace(false)
	cells, err := s.cells()
	if err != nil || len(cells) != 1 || cells[0].rate != 12e6 || cells[0].String() != "some, 50 ms, loss 0" {
		t.Errorf("got %v, %v", cells, err)
	}
}

// The seed of a run is the same whatever runs, and is exact in JSON.
func TestLossSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(20) {
		for run := 1; run <= 20; run++ {
			s := lossSeed(seed, run)
			if s >= 1<<53 || seen[s] || s != lossSeed(seed, run) {
				t.Errorf("seed %d, run %d: %d", seed, run, s)
			}
			seen[s] = true
		}
	}
}

func TestDrawn(t *testing.T) {
	p := &plan{cells: []cell{{rate: 1, delay: 20 * time.Millisecond}, {rate: 1, delay: 20 * time.Millisecond, loss: 0.01},
		{rate: 1, delay: 50 * time.Millisecond, loss: 0.01}}, duration: time.Second}
	ours := subject{algorithm: "cubic", source: "tl", name: "tl_cubic"}
	repeated := subject{algorithm: "cubic", source: "builtin-again", name: "cubic"}
	other := subject{algorithm: "lp", source: "tl", name: "tl_lp"}
	for _, c := range []struct {
		cell int
		s    subject
		run  int
		want bool
	}{{2, ours, 1, true}, {1, ours, 1, false}, {2, ours, 2, false}, {2, repeated, 1, false}, {2, other, 1, false}} {
		if got := p.drawn(&p.cells[c.cell], &c.s, c.run); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
	if p.duration = longTime; !p.drawn(&p.cells[2], &ours, 4) {
		t.Error("a long run is not drawn")
	}
}

func TestPages(t *testing.T) {
	cells, err := parsed(t).cells()
	if err != nil {
		t.Fatal(err)
	}
	list := pages(cells)
	if len(list) != 5 || list[0].String() != "40 Mbit/s, loss 0, by delay" || strings.Join(list[4].heads, " ") != "0 ms 5 ms 10 ms 20 ms 30 ms 40 ms 50 ms" {
		t.Errorf("got %+v", list)
	}
	cells, _ = parsed(t, "--delay", "50ms", "--rate", "5Mbit,9Mbit").cells()
	if list = pages(cells); len(list) != 2 || list[1].String() != "9 Mbit/s, 50 ms, by loss" || strings.Join(list[1].heads, " ") != "0 1e-5 1e-4 1e-3 1e-2" {
		t.Errorf("got %+v", list)
	}
}
