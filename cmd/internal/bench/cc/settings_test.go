// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// parsed are settings as a command line gives them.
func parsed(t *testing.T, args ...string) *settings {
	t.Helper()
	s := &settings{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--runs=0":                       "--runs 0 must be from 1",
		"--time=1ms":                     "--time 1ms must be from 100ms",
		"--time=5s --bytes=100000":       "--time and --bytes exclude each other",
		"--bytes=5":                      "--bytes 5 must be from 1000",
		"--rate=40":                      `--rate: rate "40": `,
		"--rate=40bit":                   `--rate: rate "40bit" is not from 100kbit`,
		"--delay=20":                     `--delay: time "20": not a time`,
		"--delay=20s":                    `--delay: time "20s" is above 10s`,
		"--loss=2":                       `--loss: share "2": not between`,
		"--loss=0.7":                     `--loss: share "0.7" is above a half`,
		"--queue=-1":                     "--queue -1 must be",
		"--burst=0.5":                    "--burst 0.5 must be",
		"--flows=0":                      "--flows 0 must be",
		"--sample=1us":                   "--sample 1µs must be",
		"--emulation=ns3":                `--emulation "ns3" must be auto, netem or lab`,
		"--sources=ours":                 `--sources: "ours" must be tl or kernel`,
		"--beside=auto":                  "--beside takes an algorithm",
		"--trace=/none":                  "reading a trace: stat /none",
		"--trace=/none --rate=5Mbit":     "--trace and --rate exclude each other",
		"--trace=/none --trace-up=/a,/b": "--trace-up names 2 files for the 1 of --trace",
		"--long --trace=/none":           "--long and --trace exclude each other",
		"--change=rate=20Mbit":           "it needs what changes, @ and when; write it like rate=",
		"--change=speed=1@5s":            `"speed" is none of rate, delay, loss`,
		"--change=loss=2@5s":             "not between 0% and 100%",
	} {
		err := parsed(t, strings.Fields(args)...).check()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s gave %v, want %q in one line", args, err, want)
		}
	}
}

// What a mode replaces, and what it leaves because the person has said it.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		args  string
		quick bool
		want  string
	}{
		{"", false, "14 algorithms, 7 delays, 5 losses, 5 runs of 15s, noise true"},
		{"", true, "3 algorithms, 1 delays, 2 losses, 2 runs of 1.5s, noise true"},
		{"--delay 5ms,10ms --runs 3", true, "3 algorithms, 2 delays, 2 losses, 3 runs of 1.5s, noise true"},
		{"--long", false, "3 algorithms, 1 delays, 1 losses, 4 runs of 10m0s, noise false"},
		{"--long --time 60s --loss 1e-3,1e-2", false, "3 algorithms, 1 delays, 2 losses, 4 runs of 1m0s, noise false"},
		{"--bytes 101625856", false, "14 algorithms, 7 delays, 5 losses, 5 runs of 0s, noise true"},
		{"--trace /x", false, "14 algorithms, 1 delays, 1 losses, 5 runs of 1m0s, noise true"},
		{"--trace /x", true, "3 algorithms, 1 delays, 1 losses, 2 runs of 1.5s, noise true"},
	} {
		s := parsed(t, strings.Fields(c.args)...)
		s.replace(c.quick)
		got := fmt.Sprintf("%d algorithms, %d delays, %d losses, %d runs of %v, noise %v", len(s.algorithms), len(s.delays), len(s.losses), s.runs,
			s.duration, s.noise)
		if got != c.want {
			t.Errorf("%q, quick %v: %s, want %s", c.args, c.quick, got, c.want)
		}
	}
}

func TestChanges(t *testing.T) {
	list, err := parseChanges([]string{"loss=1e-3@40s", "rate=20Mbit,delay=50ms@5s"})
	want := []change{{at: 5 * time.Second, rate: 20e6, delay: 50 * time.Millisecond, loss: -1}, {at: 40 * time.Second, delay: -1, loss: 1e-3}}
	if err != nil || fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", list, err)
	}
	s := parsed(t, "--change", "loss=0@20s", "--time", "15s", "--rate", "40Mbit")
	if err := s.checkChangesFit(&plan{changes: []change{{at: 20 * time.Second}}, duration: 15 * time.Second}); err == nil {
		t.Error("a change after the end is taken")
	}
}
