// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strings"
	"testing"

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
		"--runs=0":                 "--runs 0 must be from 1",
		"--seconds=0.1":            "--seconds 0.1 must be from 0.2",
		"--seconds=NaN":            "--seconds NaN must be",
		"--rate=1":                 `--rate: rate "1": `,
		"--rate=1kbit":             `--rate: rate "1kbit" is not from 1Mbit`,
		"--rtt=135":                `--rtt: time "135": not a time`,
		"--rtt=3s":                 `--rtt: time "3s" is not from 1ms`,
		"--mtu=576":                "--mtu 576 must be from 1280",
		"--queue=-1":               `--queue "-1" must be a number from 0`,
		"--queue=x":                `--queue "x" must be`,
		"--streams=0":              "--streams 0 must be from 1 to 64",
		"--streams=65":             "--streams 65 must be",
		"--mode=fast":              `--mode: no mode is called "fast"; there are kernel, sysctl`,
		"--emulation=ns3":          `--emulation "ns3" must be lab or netem`,
		"--rate=10Gbit --rtt=1s":   "10Gbit x 1s holds 1.16 GiB, more than the 256 MiB",
		"--queue=NaN --streams=10": `--queue "NaN" must be`,
	} {
		err := parsed(t, strings.Fields(args)...).check()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s gave %v, want %q in one line", args, err, want)
		}
	}
}

// What --quick replaces, and what it leaves because the person has said it.
func TestQuick(t *testing.T) {
	for _, c := range []struct {
		args  string
		quick bool
		want  string
	}{
		{"", false, "8 paths, 6 modes, 3 runs of 30s"},
		{"", true, "1 paths, 4 modes, 1 runs of 10s"},
		{"--streams 1,10 --queue 0.1 --seconds 3", true, "2 paths, 4 modes, 1 runs of 3s"},
		{"--mode reserved,kernel --rate 100Mbit,1Gbit --rtt 20ms,135ms --mtu 1500", false, "16 paths, 2 modes, 3 runs of 30s"},
	} {
		s := parsed(t, strings.Fields(c.args)...)
		s.replace(c.quick)
		cells, err := s.plan()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d paths, %d modes, %d runs of %v", len(cells), len(s.chosen()), s.runs, s.duration()); got != c.want {
			t.Errorf("%q, quick %v: %s, want %s", c.args, c.quick, got, c.want)
		}
		for i := range cells {
			if cells[i].number != i {
				t.Errorf("path %d has the number %d", i, cells[i].number)
			}
		}
	}
	if got := parsed(t, "--mode", "reserved,kernel").chosen(); got[0].name != modeKernel || got[1].name != modeReserved {
		t.Errorf("got %v", got)
	}
}

func TestNames(t *testing.T) {
	cells, err := parsed(t, "--rate", "2.5Gbit", "--rtt", "80ms", "--mtu", "9000", "--queue", "0.1", "--streams", "10").plan()
	if err != nil {
		t.Fatal(err)
	}
	if got := cells[0].String(); got != "2.5 Gbit/s x 80 ms, MTU 9000, queue 0.1 BDP, 10 streams" {
		t.Error(got)
	}
	if got := cells[0].fileName(); got != "2.5Gbit-80ms-mtu9000-queue0.1" {
		t.Error(got)
	}
}

func TestAgentConfig(t *testing.T) {
	for _, c := range []struct {
		mode          mode
		profile, want string
	}{
		{mode{name: modeAuto}, "bbr", "{name: bench, remote: 10.81.2.0/24, window: auto, congestion: bbr}"},
		{mode{name: modeAuto}, "", "{name: bench, remote: 10.81.2.0/24, window: auto}"},
		{mode{name: modeReserved, reserved: true}, "bbr", "{name: bench, remote: 10.81.2.0/24, window: reserved}"},
	} {
		if text := strings.Join(agentConfig(&c.mode, c.profile, "10.81.2.0/24"), "\n"); !strings.Contains(text, c.want) {
			t.Errorf("there is no %q in\n%s", c.want, text)
		}
	}
}
