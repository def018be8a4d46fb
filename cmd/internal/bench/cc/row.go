// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// row is one run. What a run does not have is left out of the JSON, and empty in the table of all rows.
type row struct {
	Algorithm   string  `json:"algorithm"` // without tl_
	Source      string  `json:"source"`    // tl, module, builtin; with -again a second turn with the same losses
	RateMbps    float64 `json:"rate_Mbps"` // of a trace the mean
	DelayMs     float64 `json:"delay_ms"`  // round trip of the empty path
	Loss        float64 `json:"loss"`      // share of data packets
	Run         int     `json:"run"`       // from 1
	GoodputMbps float64 `json:"goodput_Mbps"`
	Retransmits uint64  `json:"retransmits"` // segments
	P95RTTMs    float64 `json:"p95_rtt_ms"`  // of the smoothed round trip, sampled
	MinRTTMs    float64 `json:"min_rtt_ms"`
	RTOs        *int    `json:"rtos,omitempty"` // time-outs; where the kernel counts them
	QueueBDP    float64 `json:"queue_bdp"`
	Burst       float64 `json:"burst"` // packets lost in a row, on average
	Seconds     float64 `json:"seconds"`
	Bytes       uint64  `json:"bytes"` // received, in time
	Seed        uint64  `json:"seed"`  // of the losses
	Emulation   string  `json:"emulation"`
	Lost        uint64  `json:"lost"`            // packets, by the path's losses; of all flows there
	QueueDrops  uint64  `json:"queue_drops"`     // packets that found the queue full; of all flows
	LateMs      float64 `json:"late_ms"`         // by how much the path's emulator missed its times, on average; 0 for netem
	WindowMs    float64 `json:"rwnd_limited_ms"` // held up by the receiver's window: then it is not the algorithm that is seen
	Flows       int     `json:"flows"`
	Jain        float64 `json:"jain,omitempty"`         // of the flows among themselves
	JainBetween float64 `json:"jain_between,omitempty"` // of these and those beside

	Chosen      string `json:"chosen,omitempty"` // auto: at the end
	ChosenFirst string `json:"chosen_first,omitempty"`
	Choices     string `json:"choices,omitempty"` // auto: what was changed meanwhile, and why

	Beside            string  `json:"beside,omitempty"`
	BesideMbps        float64 `json:"beside_goodput_Mbps,omitempty"`
	BesideRetransmits uint64  `json:"beside_retransmits,omitempty"`
	Trace             string  `json:"trace,omitempty"`
	Change            string  `json:"change,omitempty"`

	cell    cell
	subject subject
}

// flows is what both ends saw in a run.
type flows struct {
	subject  *subject
	cell     *cell
	run      int
	seed     uint64
	measured []sent
	beside   []sent
	got      map[uint32]received
	path     lab.Stats // what the way there did to them
	choices  string
}

const digits = 4 // of every figure: more would be noise

// result makes the row of a run, and its course.
func (e *experiment) result(f *flows) (row, *trace, error) {
	mine, err := e.carried(f.measured, f.got)
	if err != nil {
		return row{}, nil, err
	}
	r := row{
		Algorithm: f.subject.algorithm, Source: f.subject.source, RateMbps: bench.Significant(float64(f.cell.rate)/1e6, digits),
		DelayMs: f.cell.delay.Seconds() * 1e3, Loss: f.cell.loss, Run: f.run, Seed: f.seed, QueueBDP: e.queueBDP, Burst: e.burst,
		Emulation: e.plan.emulation, Flows: len(f.measured), Trace: f.cell.traceName(), Change: strings.Join(e.changes, " "),
		GoodputMbps: bench.Significant(sum(mine.goodput), digits), Retransmits: mine.retransmits, Seconds: bench.Significant(mine.seconds, digits),
		Bytes: mine.bytes, P95RTTMs: bench.Significant(p95RTT(f.measured), digits), Lost: f.path.Lost,
		QueueDrops: f.path.QueueDrops, LateMs: bench.Significant(f.path.LateAvg().Seconds()*1e3, digits), cell: *f.cell, subject: *f.subject,
	}
	first := &f.measured[0]
	r.MinRTTMs = bench.Significant(float64(first.MinRTTUs)/1e3, digits)
	r.WindowMs = bench.Significant(float64(first.RwndUs)/1e3, digits)
	if mine.rtos >= 0 {
		r.RTOs = &mine.rtos
	}
	if f.subject.auto() {
		r.Chosen, r.ChosenFirst, r.Choices = first.Congestion, first.First, f.choices
	}
	if len(mine.goodput) > 1 {
		r.Jain = bench.Significant(bench.Jain(mine.goodput), digits)
	}
	if len(f.beside) > 0 {
		theirs, err := e.carried(f.beside, f.got)
		if err != nil {
			return row{}, nil, err
		}
		r.Beside, r.BesideMbps, r.BesideRetransmits = e.plan.beside, bench.Significant(sum(theirs.goodput), digits), theirs.retransmits
		r.JainBetween = bench.Significant(bench.Jain(slices.Concat(mine.goodput, theirs.goodput)), digits)
	}
	return r, newTrace(f), nil
}

// carried is what flows of one algorithm achieved together.
type carried struct {
	goodput     []float64 // Mbit/s, of each
	bytes       uint64
	seconds     float64 // of the longest
	retransmits uint64
	rtos        int // -1: not counted by this kernel
}

func (e *experiment) carried(flows []sent, got map[uint32]received) (c carried, err error) {
	for i := range flows {
		s := &flows[i]
		r, ok := got[s.ID]
		if !ok {
			return c, fmt.Errorf("the receiver knows nothing of flow %d", s.ID)
		}
		bytes, seconds := r.InTime, e.plan.duration.Seconds()
		if e.plan.duration == 0 {
			if r.Bytes != s.Bytes {
				return c, fmt.Errorf("%d bytes were sent, the receiver took %d", s.Bytes, r.Bytes)
			}
			bytes, seconds = r.Bytes, float64(r.LastNs-s.StartNs)/1e9
		}
		c.goodput = append(c.goodput, float64(bytes)*8/1e6/seconds)
		c.bytes += bytes
		c.seconds = max(c.seconds, seconds)
		c.retransmits += s.Retransmits
		c.rtos += s.RTOs
	}
	if slices.ContainsFunc(flows, func(s sent) bool { return s.RTOs < 0 }) {
		c.rtos = -1
	}
	return c, nil
}
