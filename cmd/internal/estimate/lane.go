// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/cmd/internal/twoends"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Sums say where bytes went. RawBytes = WithinBytes + EarlierBytes + CompressedBytes + WireBytes.
type Sums struct {
	RawBytes        uint64  `json:"raw_bytes"`
	WireBytes       uint64  `json:"wire_bytes"`       // payloads and frame headers
	WithinBytes     uint64  `json:"within_bytes"`     // saved: repeats of the same file or flow
	EarlierBytes    uint64  `json:"earlier_bytes"`    // saved: repeats of earlier ones
	CompressedBytes int64   `json:"compressed_bytes"` // saved by compression, less what references and frames cost
	Ratio           float64 `json:"ratio"`
}

func (s *Sums) add(o Sums) {
	s.RawBytes += o.RawBytes
	s.WireBytes += o.WireBytes
	s.WithinBytes += o.WithinBytes
	s.EarlierBytes += o.EarlierBytes
	s.finish()
}

// finish computes what follows from the rest.
func (s *Sums) finish() {
	s.CompressedBytes = int64(s.RawBytes) - int64(s.WithinBytes) - int64(s.EarlierBytes) - int64(s.WireBytes)
	if s.Ratio = 0; s.WireBytes > 0 {
		s.Ratio = float64(s.RawBytes) / float64(s.WireBytes)
	}
}

// A lane carries one file, or one direction of a flow, from end to end.
type lane struct {
	flow   *twoends.Flow
	alone  *twoends.Probe // the same without anything earlier: what repeats within
	frames []byte
}

// newLane opens a lane; aloneBytes is how far back repeats within the lane itself are looked for.
func newLane(p *twoends.Peering, s codec.Spec, aloneBytes int64, buffer []byte) (*lane, error) {
	alone, err := twoends.NewProbe(s, aloneBytes)
	if err != nil {
		return nil, err
	}
	return &lane{flow: p.Begin(s, codec.EffortDefault, buffer), alone: alone}, nil
}

// send carries one block.
func (l *lane) send(block []byte) error {
	l.flow.Send(block)
	l.alone.Send(block)
	return l.flow.Deliver(block)
}

// end closes the lane, and tells why it gained nothing, if it did not.
func (l *lane) end() (s Sums, why string) {
	counters := l.flow.Encoder().Counters()
	if r := l.flow.Encoder().Reason(); r != reason.None {
		why = r.String()
	}
	l.frames = l.flow.End()
	s.RawBytes, s.WireBytes = uint64(l.flow.RawBytes), uint64(l.flow.WireBytes)
	s.WithinBytes = min(l.alone.End(), counters.RefBytes)
	s.EarlierBytes = counters.RefBytes - s.WithinBytes
	s.finish()
	return s, why
}
