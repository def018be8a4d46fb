// SPDX-License-Identifier: Apache-2.0

package window

import (
	"math"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
)

// At 8 Mbit/s a full bin of 20 ms has 20,000 bytes, and 90 % are 18,000.
func TestTimeTo90(t *testing.T) {
	const ceiling = 8e6
	for _, c := range []struct {
		name string
		bins []uint64
		want float64 // 0: never
	}{
		{"full at once", []uint64{20000, 20000, 20000, 20000, 20000}, 0.02},
		{"exactly 90 %", []uint64{0, 18000, 18000, 18000, 18000, 18000}, 0.04},
		{"just below", []uint64{17999, 18000, 18000, 18000, 18000}, 0},
		{"a burst, and less after it", []uint64{20000, 9000, 20000, 9000, 20000, 20000, 20000, 20000, 20000, 20000}, 0.10},
		{"a gap that the average covers", []uint64{0, 20000, 20000, 10000, 20000, 20000}, 0.04},
		{"a first bin that is not full does not count", []uint64{17000, 20000, 20000, 20000, 20000, 20000}, 0.04},
		{"too few bins after it", []uint64{0, 0, 20000, 20000, 20000, 20000}, 0},
		{"nothing", nil, 0},
	} {
		got, ok := timeTo90(c.bins, ceiling)
		if ok != (c.want > 0) || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, %v, want %v", c.name, got, ok, c.want)
		}
	}
}

// 500 bins are 10 s: 500 x 25,000 bytes are 10 Mbit/s.
func TestGoodput(t *testing.T) {
	bins := make([]uint64, 600)
	for i := range bins {
		bins[i] = 25_000
	}
	bins[500] = 1e9 // after it
	if got := goodputMbps(bins, 10*time.Second, 12*time.Second); got == nil || *got != 10 {
		t.Errorf("got %v", got)
	}
	if got := goodputMbps(bins, 30*time.Second, 12*time.Second); got != nil {
		t.Errorf("12 s gave %v over 30", *got)
	}
	if got := goodputMbps(bins[:100], 10*time.Second, 12*time.Second); *got != 2 {
		t.Errorf("a fifth of the bins gave %v", *got)
	}
}

func TestCeiling(t *testing.T) {
	for _, c := range []struct {
		mtu      int
		ceiling  float64 // Mbit/s
		rate     uint64  // of IP packets
		segments int
	}{{1500, 1000 * 1448.0 / 1514, 990752972, 11146}, {9000, 1000 * 8948.0 / 9014, 998446860, 1873}} {
		p := cell{rate: 1e9, rtt: 135 * time.Millisecond, mtu: c.mtu, queueBDP: 0.1}
		if got := p.ceiling() / 1e6; math.Abs(got-c.ceiling) > 1e-9 {
			t.Errorf("MTU %d: the ceiling is %v, want %v", c.mtu, got, c.ceiling)
		}
		if p.packetRate() != c.rate || p.bdp() != 16_875_000 || p.segments() != c.segments {
			t.Errorf("MTU %d: rate %d, BDP %d, segments %d", c.mtu, p.packetRate(), p.bdp(), p.segments())
		}
		if got := p.queueTime(); got < 13490*time.Microsecond || got > 13510*time.Microsecond {
			t.Errorf("MTU %d: the queue drains in %v", c.mtu, got)
		}
	}
	// 30 kB at 1 Mbit/s, nearly all of it packets.
	short := cell{rate: 1e6, rtt: time.Millisecond, mtu: 1500, queueBDP: 1}
	if got := short.queueTime(); got < 240*time.Millisecond || got > 243*time.Millisecond {
		t.Errorf("the least queue drains in %v", got)
	}
}

func TestPeakTogether(t *testing.T) {
	a, b := held{First: 10, Peaks: []uint64{5, 1, 7}}, held{First: 11, Peaks: []uint64{9, 2, 8}}
	for _, c := range []struct {
		a, b held
		want uint64
	}{{a, b, 10}, {b, a, 10}, {a, held{}, 7}, {held{}, b, 9}, {held{}, held{}, 0}} {
		if got := peakTogether(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	never := math.Inf(1)
	for _, c := range []struct {
		values []float64
		want   string
	}{{[]float64{0.4}, "0.40"}, {[]float64{2, never, 1}, "2.00"}, {[]float64{never, 1, never}, "never"}, {[]float64{1, 2}, "1.50"},
		{[]float64{1, never}, "never"}} {
		if got := seconds(median(c.values)); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}

// What stands in the tables and drawings: medians, the worst, and nothing of a path on which no run counted.
func TestReport(t *testing.T) {
	e := made(t)
	r := e.report()
	benchtest.CheckRows(t, r.Rows)
	benchtest.CheckTables(t, r.Tables)
	var b strings.Builder
	for _, table := range r.Tables {
		table.Write(&b)
	}
	for _, want := range []string{"1 Gbit/s x 135 ms, MTU 1500, queue 1 BDP: payload ceiling 956 Mbit/s",
		"reserved        1  0.40  never      904", "Discarded, and made again"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, &b)
		}
	}
	if len(r.Tables) != 1 || len(r.Plots) != 2 {
		t.Errorf("%d tables, %d plots", len(r.Tables), len(r.Plots))
	}
	for _, p := range r.Plots {
		if err := p.Draw(plot.New()); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// made has three runs on the first of two paths, one of which never filled it.
func made(t *testing.T) *experiment {
	t.Helper()
	e := &experiment{settings: *parsed(t, "--mode", "reserved", "--mtu", "1500", "--streams", "1", "--seconds", "10"), discarded: 7}
	var err error
	if e.cells, err = e.plan(); err != nil {
		t.Fatal(err)
	}
	e.modes = e.chosen()
	for i, t90 := range []float64{0.4, 0.38, 0} {
		goodput := 904.0
		r := row{Mode: modeReserved, Streams: 1, MTU: 1500, Run: i + 1, Goodput10: &goodput, Jain: 1, PeakBytes: 65e6, cell: &e.cells[0]}
		if t90 > 0 {
			r.T90 = &t90
		}
		e.rows = append(e.rows, r)
	}
	e.courses = []course{{cell: &e.cells[0], mode: modeReserved, bins: make([]uint64, 500)}}
	return e
}
