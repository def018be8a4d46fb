// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"context"
	"fmt"
	"slices"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/twoends"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Small messages: consecutive records of a file of text, each sent when the one before it has arrived.
const (
	recordBytes = 105
	records     = 1000
)

// messages are what the runs of one codec gave.
type messages struct {
	file string
	wire []float64 // bytes of each record's frame; the same in every run
	us   []float64 // medians of encoding and decoding one record, an entry a run
}

// small sends the records with every codec, in a flow and with a history of their own.
func (e *experiment) small(ctx context.Context) error {
	f := textLike(e.files)
	for _, turn := range bench.Interleave(e.session.Seed, e.recordRuns(), len(e.specs)) {
		for _, n := range turn {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e.step("records of %d bytes: %s", recordBytes, e.specs[n])
			if err := e.sendRecords(f, e.specs[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordRuns is how often: it takes next to no time.
func (e *experiment) recordRuns() int { return max(e.runs, 3) }

func (e *experiment) sendRecords(f file, s codec.Spec) error {
	m := e.messages[s]
	if m == nil {
		m = &messages{file: f.name}
		e.messages[s] = m
	}
	data := f.data[:min(len(f.data), records*recordBytes)]
	p, err := twoends.New(leastHistory)
	if err != nil {
		return err
	}
	flow := p.Begin(s, codec.EffortDefault, e.buffer)
	defer func() { e.buffer = flow.End() }()
	flow.Clock = cpuTime
	m.wire = m.wire[:0]
	var us []float64
	for n := 0; len(data) > 0; data = data[n:] {
		n = min(recordBytes, len(data))
		wire, took := flow.WireBytes, flow.Encode+flow.Decode
		flow.Send(data[:n])
		if err := flow.Deliver(data[:n]); err != nil {
			return fmt.Errorf("%v, records: %w", s, err)
		}
		m.wire = append(m.wire, float64(flow.WireBytes-wire))
		us = append(us, (flow.Encode+flow.Decode-took).Seconds()*1e6)
	}
	m.us = append(m.us, bench.Of(us).Median)
	return nil
}

func (m *messages) medianWire() float64 { return bench.Of(slices.Clone(m.wire)).Median }
