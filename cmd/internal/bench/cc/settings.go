// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// settings are the bench's own flags, as they were given.
type settings struct {
	set        *pflag.FlagSet
	rates      []string
	delays     []string
	losses     []string
	algorithms []string
	without    []string
	candidates []string
	sources    []string
	runs       int
	bytes      uint64
	duration   time.Duration
	queueBDP   float64
	burst      float64
	traces     []string
	tracesUp   []string
	changes    []string
	beside     string
	flowCount  int
	long       bool
	noise      bool
	sample     time.Duration
	emulation  string
}

// The defaults, which --quick, --long and --trace replace where a flag is not given.
var (
	defaultRates  = []string{"40Mbit"}
	defaultDelays = []string{"0ms", "5ms", "10ms", "20ms", "30ms", "40ms", "50ms"}
	defaultLosses = []string{"0", "1e-5", "1e-4", "1e-3", "1e-2"}
	defaultNames  = []string{"illinois", "yeah", "westwood", "bic", "veno", "htcp", "vegas", "hybla", "highspeed", "cubic", "lp", "reno",
		"bbr", "auto"}
)

const (
	autoName    = "auto"
	defaultTime = 15 * time.Second
	traceTime   = time.Minute
	defaultRuns = 5
	longTime    = 600 * time.Second
	longRuns    = 4
	quickRun    = 1500 * time.Millisecond
	quickRuns   = 2
	// noiseRuns are the fewest of which a second turn of the kernel's own says something.
	noiseRuns = 3
)

// longNames are those of the study's figure of ten minutes, and of the traces of windows.
var longNames = []string{"illinois", "westwood", "cubic"}

func (s *settings) flags(f *pflag.FlagSet) {
	s.set = f
	f.StringSliceVar(&s.rates, "rate", defaultRates, "rates of the path")
	f.StringSliceVar(&s.delays, "delay", defaultDelays, "round-trip times of the empty path; all of it lies on the way there")
	f.StringSliceVar(&s.losses, "loss", defaultLosses, "shares of the data packets that are lost")
	f.StringSliceVar(&s.algorithms, "algorithms", defaultNames, "by name: ours and the kernel's; tl_NAME is ours alone; auto is the agent's choice")
	f.StringSliceVar(&s.without, "without", nil, "leave these out, also of what auto chooses from")
	f.StringSliceVar(&s.candidates, "candidates", nil, "what auto chooses from (default that of the agent)")
	f.StringSliceVar(&s.sources, "sources", []string{"tl", "kernel"}, "whose: tl, kernel or both")
	f.IntVar(&s.runs, "runs", defaultRuns, "how often each is run on each path")
	f.DurationVar(&s.duration, "time", defaultTime, "how long each run sends")
	f.Uint64Var(&s.bytes, "bytes", 0, "send so many bytes instead, however long it takes; the study sent 101625856")
	f.Float64Var(&s.queueBDP, "queue", 1, "length of the drop-tail queue in rate x delay, but room for an initial window at least")
	f.Float64Var(&s.burst, "burst", 1, "packets lost in a row, on average, at the same loss")
	f.StringSliceVar(&s.traces, "trace", nil, "files of measured links to replay instead of rates, in Mahimahi's format")
	f.StringSliceVar(&s.tracesUp, "trace-up", nil, "files for their way back, as many (default: the same rate as there)")
	f.StringArrayVar(&s.changes, "change", nil, "change the path under the flow, as in rate=20Mbit,loss=1e-3,delay=50ms@5s; may be given again")
	f.StringVar(&s.beside, "beside", "", "send with this algorithm at the same time, and say who got what")
	f.IntVar(&s.flowCount, "flows", 1, "how many flows of each algorithm send at the same time")
	f.BoolVar(&s.long, "long", false, "ten minutes of Illinois, Westwood+ and CUBIC at 50 ms and 1e-2, four times, with plots over time")
	f.BoolVar(&s.noise, "noise", true, "a second turn of the kernel's own with the same losses, to see the noise; with 3 runs and more")
	f.DurationVar(&s.sample, "sample", 10*time.Millisecond, "how often a sender reads its socket's figures")
	f.StringVar(&s.emulation, "emulation", emulationAuto, "what makes the path: auto, netem (the kernel) or lab (trunkline's emulator)")
}

// given says whether a flag is on the command line.
func (s *settings) given(name string) bool { return s.set != nil && s.set.Changed(name) }

// check refuses what cannot be run, before anything is begun.
func (s *settings) check() error {
	switch {
	case s.runs < 1 || s.runs > 1000:
		return fmt.Errorf("--runs %d must be from 1 to 1000", s.runs)
	case s.given("time") && s.given("bytes"):
		return errors.New("--time and --bytes exclude each other; give one")
	case s.duration < 100*time.Millisecond || s.duration > time.Hour:
		return fmt.Errorf("--time %v must be from 100ms to 1h", s.duration)
	case s.given("bytes") && (s.bytes < 1000 || s.bytes > 1e12):
		return fmt.Errorf("--bytes %d must be from 1000 to 1000000000000", s.bytes)
	case !(s.queueBDP >= 0 && s.queueBDP <= 100):
		return fmt.Errorf("--queue %g must be from 0 to 100 times rate x delay", s.queueBDP)
	case !(s.burst >= 1 && s.burst <= 1000):
		return fmt.Errorf("--burst %g must be from 1 to 1000 packets", s.burst)
	case s.flowCount < 1 || s.flowCount > 64:
		return fmt.Errorf("--flows %d must be from 1 to 64", s.flowCount)
	case s.sample < time.Millisecond || s.sample > time.Second:
		return fmt.Errorf("--sample %v must be from 1ms to 1s", s.sample)
	case !slices.Contains([]string{emulationAuto, emulationNetem, emulationLab}, s.emulation):
		return fmt.Errorf("--emulation %q must be auto, netem or lab", s.emulation)
	case s.beside == autoName:
		return errors.New("--beside takes an algorithm; auto is what it is put beside: --algorithms auto")
	case s.long && len(s.traces) > 0:
		return errors.New("--long and --trace exclude each other; give --trace with --time")
	}
	for _, name := range s.sources {
		if name != "tl" && name != "kernel" {
			return fmt.Errorf("--sources: %q must be tl or kernel", name)
		}
	}
	return s.checkLists()
}

func (s *settings) checkLists() error {
	if _, _, _, err := s.grid(); err != nil {
		return err
	}
	if _, err := parseChanges(s.changes); err != nil {
		return err
	}
	if len(s.traces) > 0 && s.given("rate") {
		return errors.New("--trace and --rate exclude each other; a trace is the rate")
	}
	if n := len(s.tracesUp); n > 0 && n != len(s.traces) {
		return fmt.Errorf("--trace-up names %d files for the %d of --trace; give one for each", n, len(s.traces))
	}
	for _, path := range append(slices.Clone(s.traces), s.tracesUp...) {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("reading a trace: %w", err)
		}
	}
	return nil
}

// grid reads the lists of rates in bit/s, delays and losses.
func (s *settings) grid() (rates []uint64, delays []time.Duration, losses []float64, err error) {
	for _, text := range s.rates {
		r, err := readRate(text)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--rate: %w", err)
		}
		rates = append(rates, r)
	}
	for _, text := range s.delays {
		d, err := readDelay(text)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--delay: %w", err)
		}
		delays = append(delays, d)
	}
	for _, text := range s.losses {
		p, err := readLoss(text)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--loss: %w", err)
		}
		losses = append(losses, p)
	}
	if len(rates) == 0 || len(delays) == 0 || len(losses) == 0 {
		return nil, nil, nil, errors.New("--rate, --delay and --loss need one value at least")
	}
	return rates, delays, losses, nil
}

func readRate(text string) (uint64, error) {
	r, err := units.Rate(text)
	if err == nil && (r < 1e5 || r > 1e10) {
		err = fmt.Errorf("rate %q is not from 100kbit to 10Gbit", text)
	}
	return r, err
}

func readDelay(text string) (time.Duration, error) {
	d, err := units.Duration(text)
	if err == nil && d > 10*time.Second {
		err = fmt.Errorf("time %q is above 10s", text)
	}
	return d, err
}

func readLoss(text string) (float64, error) {
	p, err := units.Percent(text)
	if err == nil && p > 0.5 {
		err = fmt.Errorf("share %q is above a half", text)
	}
	return p, err
}

// replace sets what the modes have for defaults, where the person has not said otherwise.
func (s *settings) replace(quick bool) {
	other := func(name string, set func()) {
		if !s.given(name) {
			set()
		}
	}
	if len(s.traces) > 0 {
		other("delay", func() { s.delays = []string{"50ms"} })
		other("loss", func() { s.losses = []string{"0"} })
		other("time", func() { s.duration = traceTime })
	}
	switch {
	case s.long:
		other("algorithms", func() { s.algorithms = longNames })
		other("sources", func() { s.sources = []string{"tl"} })
		other("delay", func() { s.delays = []string{"50ms"} })
		other("loss", func() { s.losses = []string{"1e-2"} })
		other("runs", func() { s.runs = longRuns })
		other("time", func() { s.duration = longTime })
		other("noise", func() { s.noise = false })
	case quick:
		other("algorithms", func() { s.algorithms = []string{"illinois", "cubic", autoName} })
		other("delay", func() { s.delays = s.delays[max(0, len(s.delays)-1):] })
		if len(s.traces) == 0 {
			other("loss", func() { s.losses = []string{"1e-3", "1e-2"} })
		}
		other("runs", func() { s.runs = quickRuns })
		other("time", func() { s.duration = quickRun })
	}
	if s.long && quick {
		other("runs", func() { s.runs = 1 })
		other("time", func() { s.duration = 10 * time.Second })
	}
	if s.bytes > 0 {
		s.duration = 0
	}
}

// bare is an algorithm's name whoever brings it.
func bare(name string) string { return strings.TrimPrefix(name, "tl_") }
