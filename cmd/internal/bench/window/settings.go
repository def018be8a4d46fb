// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// settings are the bench's own flags, as they were given.
type settings struct {
	set       *pflag.FlagSet
	rates     []string
	rtts      []string
	mtus      []int
	queues    []string // in BDP
	streams   []int
	modeNames []string
	runs      int
	seconds   float64
	emulation string
}

// The emulations by name.
const (
	emulationLab   = "lab"
	emulationNetem = "netem"
)

const (
	defaultSeconds = 30
	quickSeconds   = 10
	defaultRuns    = 3
	maxStreams     = 64
	// maxBDP bounds what all ends and the emulator hold of a path: several times this.
	maxBDP = 256 << 20
)

// quickModes are those that --quick leaves: what there is without anybody's doing, the competitor, and ours.
var quickModes = []string{modeKernel, modeSysctl, modeAuto, modeReserved}

func (s *settings) flags(f *pflag.FlagSet) {
	s.set = f
	f.StringSliceVar(&s.rates, "rate", []string{"1Gbit"}, "rates of the path, of the link layer")
	f.StringSliceVar(&s.rtts, "rtt", []string{"135ms"}, "round-trip times of the empty path")
	f.IntSliceVar(&s.mtus, "mtu", []int{1500, 9000}, "bytes of an IP packet")
	f.StringSliceVar(&s.queues, "queue", []string{"1", "0.1"}, "lengths of the drop-tail queue in rate x RTT, but 30 kB at least")
	f.IntSliceVar(&s.streams, "streams", []int{1, 10}, "how many connections send at the same time")
	f.StringSliceVar(&s.modeNames, "mode", names(), "who sees to windows")
	f.IntVar(&s.runs, "runs", defaultRuns, "how often each mode is run on each path")
	f.Float64Var(&s.seconds, "seconds", defaultSeconds, "how long each run sends, from connect(); goodput over 30 s needs 30")
	f.StringVar(&s.emulation, "emulation", emulationLab, "what makes the path: lab (trunkline's emulator, with super-packets) or netem (the kernel, packet by packet)")
}

// given says whether a flag is on the command line.
func (s *settings) given(name string) bool { return s.set != nil && s.set.Changed(name) }

// duration of each run.
func (s *settings) duration() time.Duration { return time.Duration(s.seconds * float64(time.Second)) }

// check refuses what cannot be run, before anything is begun.
func (s *settings) check() error {
	switch {
	case s.runs < 1 || s.runs > 1000:
		return fmt.Errorf("--runs %d must be from 1 to 1000", s.runs)
	case !(s.seconds >= 0.2 && s.seconds <= 3600):
		return fmt.Errorf("--seconds %g must be from 0.2 to 3600", s.seconds)
	case s.emulation != emulationLab && s.emulation != emulationNetem:
		return fmt.Errorf("--emulation %q must be lab or netem", s.emulation)
	case len(s.streams) == 0 || len(s.mtus) == 0 || len(s.queues) == 0 || len(s.rates) == 0 || len(s.rtts) == 0 || len(s.modeNames) == 0:
		return errors.New("--rate, --rtt, --mtu, --queue, --streams and --mode need one value at least")
	}
	for _, n := range s.streams {
		if n < 1 || n > maxStreams {
			return fmt.Errorf("--streams %d must be from 1 to %d", n, maxStreams)
		}
	}
	for _, m := range s.mtus {
		if m < 1280 || m > 65520 {
			return fmt.Errorf("--mtu %d must be from 1280 to 65520", m)
		}
	}
	for _, name := range s.modeNames {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--mode: no mode is called %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	_, err := s.plan()
	return err
}

// plan reads the lists, and gives all paths: streams within queues within MTUs within round-trip times within rates.
func (s *settings) plan() (cells []cell, err error) {
	for _, rate := range s.rates {
		for _, rtt := range s.rtts {
			c := cell{}
			if c.rate, err = readRate(rate); err != nil {
				return nil, err
			}
			if c.rtt, err = readRTT(rtt); err != nil {
				return nil, err
			}
			if c.bdp() > maxBDP {
				return nil, fmt.Errorf("%s x %s holds %s, more than the %s of which ends and emulator could keep several", rate, rtt,
					units.FormatSize(uint64(c.bdp())), units.FormatSize(uint64(maxBDP)))
			}
			for _, c.mtu = range s.mtus {
				for _, queue := range s.queues {
					if c.queueBDP, err = strconv.ParseFloat(queue, 64); err != nil || !(c.queueBDP >= 0 && c.queueBDP <= 100) {
						return nil, fmt.Errorf("--queue %q must be a number from 0 to 100, in rate x RTT", queue)
					}
					for _, c.streams = range s.streams {
						c.number = len(cells)
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells, nil
}

func readRate(text string) (uint64, error) {
	r, err := units.Rate(text)
	if err == nil && (r < 1e6 || r > 1e10) {
		err = fmt.Errorf("rate %q is not from 1Mbit to 10Gbit", text)
	}
	if err != nil {
		return 0, fmt.Errorf("--rate: %w", err)
	}
	return r, nil
}

func readRTT(text string) (time.Duration, error) {
	d, err := units.Duration(text)
	if err == nil && (d < time.Millisecond || d > 2*time.Second) {
		err = fmt.Errorf("time %q is not from 1ms to 2s", text)
	}
	if err != nil {
		return 0, fmt.Errorf("--rtt: %w", err)
	}
	return d, nil
}

// replace sets what --quick has for defaults, where the person has not said otherwise.
func (s *settings) replace(quick bool) {
	if !quick {
		return
	}
	other := func(name string, set func()) {
		if !s.given(name) {
			set()
		}
	}
	other("mode", func() { s.modeNames = quickModes })
	other("mtu", func() { s.mtus = s.mtus[:1] })
	other("queue", func() { s.queues = s.queues[:1] })
	other("streams", func() { s.streams = s.streams[:1] })
	other("runs", func() { s.runs = 1 })
	other("seconds", func() { s.seconds = quickSeconds })
}

// chosen are the modes asked for, in the order of the table.
func (s *settings) chosen() (list []mode) {
	for _, m := range modes {
		if slices.Contains(s.modeNames, m.name) {
			list = append(list, m)
		}
	}
	return list
}

// labOptions are those of a path.
func (s *settings) labOptions(c *cell) lab.Options {
	o := lab.Options{Rate: c.packetRate(), RTT: c.rtt, MTU: c.mtu, QueueBDP: c.queueBDP, NoIPv6: true}
	if c.queueBDP == 0 {
		o.QueueBytes = lab.MinQueue
	}
	if s.emulation == emulationNetem {
		o.Emulation = lab.InKernel
	}
	return o
}
