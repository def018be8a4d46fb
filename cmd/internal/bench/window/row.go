// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/bench"
)

// row is one run. A figure that was never reached, or that the run was too short for, is null.
type row struct {
	Mode        string   `json:"mode"`
	Streams     int      `json:"streams"`
	RateMbps    float64  `json:"rate_Mbps"` // of the link layer
	RTTMs       float64  `json:"rtt_ms"`    // of the empty path
	MTU         int      `json:"mtu"`
	QueueBDP    float64  `json:"queue_bdp"`
	Run         int      `json:"run"`   // from 1
	T90         *float64 `json:"t90_s"` // from connect() to the end of the first bin with 90 % of the ceiling
	Goodput10   *float64 `json:"goodput10_Mbps"`
	Retransmits uint64   `json:"retransmits"` // segments, of all streams
	Jain        float64  `json:"jain"`        // of the streams' bytes within 10 s
	PeakBytes   uint64   `json:"peak_buffer_bytes"`

	Goodput30   *float64 `json:"goodput30_Mbps"`
	Goodput     float64  `json:"goodput_Mbps"` // over the whole run
	Ceiling     float64  `json:"ceiling_Mbps"` // of payload
	Seconds     float64  `json:"seconds"`
	Congestion  string   `json:"congestion"`
	RwndMs      float64  `json:"rwnd_limited_ms"` // held up by the receiver's window, of the stream that was longest
	SndbufMs    float64  `json:"sndbuf_limited_ms"`
	MinRTTMs    float64  `json:"min_rtt_ms"`
	QueueDrops  uint64   `json:"queue_drops"` // packets that found the queue full
	LateMs      float64  `json:"late_ms"`     // of the emulator at worst; 0 for netem
	Discarded   int      `json:"discarded"`   // attempts before this one, in which the emulator was too late
	PeakSend    uint64   `json:"peak_send_bytes"`
	PeakReceive uint64   `json:"peak_receive_bytes"`
	Emulation   string   `json:"emulation"`
	Seed        uint64   `json:"seed"`

	cell *cell
}

const digits = 4 // of every figure: more would be noise

// jainTime is over what streams are compared, where the run is that long.
const jainTime = 10 * time.Second

// result makes the row of a run.
func (w *world) result(s sent, got received, run int) (r row, bins []uint64, err error) {
	c, e := w.cell, w.e
	if len(s.Streams) != c.streams || len(got.Streams) != c.streams {
		return r, nil, fmt.Errorf("%d streams were sent and %d received, not %d", len(s.Streams), len(got.Streams), c.streams)
	}
	duration := e.duration()
	bins = make([]uint64, int(duration/binTime))
	var each []float64
	for i := range got.Streams {
		own := got.Streams[i].Bins
		own = own[:min(len(own), len(bins))]
		bins = add(bins, own)
		each = append(each, float64(bytesIn(own, min(jainTime, duration))))
	}
	r = row{
		Mode: w.mode.name, Streams: c.streams, RateMbps: bench.Significant(float64(c.rate)/1e6, digits), RTTMs: c.rtt.Seconds() * 1e3, MTU: c.mtu,
		QueueBDP: c.queueBDP, Run: run, Jain: bench.Significant(bench.Jain(each), digits), PeakBytes: peakTogether(s.Held, got.Held),
		Goodput10: rounded(goodputMbps(bins, 10*time.Second, duration)), Goodput30: rounded(goodputMbps(bins, 30*time.Second, duration)),
		Goodput: *rounded(goodputMbps(bins, duration, duration)), Ceiling: bench.Significant(c.ceiling()/1e6, digits), Seconds: e.seconds,
		PeakSend: peakTogether(s.Held, held{}), PeakReceive: peakTogether(got.Held, held{}), Emulation: e.emulation, Seed: e.session.Seed,
		LateMs: bench.Significant(w.late().Seconds()*1e3, digits), QueueDrops: w.lab.Link.AB.Stats().QueueDrops, cell: c,
	}
	if t, ok := timeTo90(bins, c.ceiling()); ok {
		r.T90 = rounded(&t)
	}
	for _, f := range s.Streams {
		r.Retransmits += f.Retransmits
		r.RwndMs = max(r.RwndMs, bench.Significant(float64(f.RwndUs)/1e3, digits))
		r.SndbufMs = max(r.SndbufMs, bench.Significant(float64(f.SndbufUs)/1e3, digits))
		r.MinRTTMs = bench.Significant(float64(f.MinRTTUs)/1e3, digits)
		r.Congestion = f.Congestion
	}
	return r, bins, nil
}

func rounded(v *float64) *float64 {
	if v == nil {
		return nil
	}
	r := bench.Significant(*v, digits)
	return &r
}
