// SPDX-License-Identifier: Apache-2.0

// Package twoends carries bytes from an encoder to a decoder within this process, as two agents do over a leg, and compares
// every byte that comes out. Experiments and estimates share it.
package twoends

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	engine "github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/wanproxy"
	"github.com/trunkline/trunkline/proxy/history"
	"github.com/trunkline/trunkline/proxy/wire"
)

// Peering is one direction between two ends that have said hello: what the near one sends and the far one remembers.
type Peering struct{ near, far *engine.Memory }

// New makes ends with empty histories of so many bytes each, and a margin for what is on its way.
func New(bytes int64) (*Peering, error) {
	near, err := memory(bytes)
	if err != nil {
		return nil, err
	}
	far, err := memory(bytes)
	if err != nil {
		return nil, err
	}
	near.SetPeer(far.Receivers.Epoch(), far.Receivers.Epoch(), 0)
	far.SetPeer(near.Receivers.Epoch(), near.Receivers.Epoch(), 0)
	return &Peering{near: near, far: far}, nil
}

// memory is one that is gone when nobody knows it any more: its histories lie in the heap, so that the memory of one is used again by
// the next, and need not come from the system, which would cost more than what is measured.
func memory(bytes int64) (*engine.Memory, error) {
	store, err := history.Open(history.Options{MemoryBytes: bytes})
	if err != nil {
		return nil, fmt.Errorf("making a history of %d bytes: %w", bytes, err)
	}
	// Half of a store of segments is for what is received, and there is only one direction here.
	m := engine.NewMemory(store, wanproxy.NewStore(2*bytes), []byte(group))
	m.Senders, m.Receivers = history.NewSenders(bytes), history.NewReceivers(bytes)
	return m, nil
}

const group = "flows"

// Flow is one direction of a flow. It belongs to one goroutine. What Encode is given must stay as it is until Deliver.
type Flow struct {
	Clock          func() time.Duration // of what Encode and Decode cost; nil: they are not measured
	Encode, Decode time.Duration        // since the flow began
	RawBytes       int
	WireBytes      int // frames: payloads and their headers
	Blocks         int

	enc    codec.Encoder
	dec    codec.Decoder
	frames []byte // that are on their way, each with room for its header in front
	ends   []int  // where in frames each ends
}

// Begin opens a flow. buffer is used for what is on its way, and may come from an earlier flow's End.
func (p *Peering) Begin(s codec.Spec, effort codec.Effort, buffer []byte) *Flow {
	f := &Flow{enc: p.near.Encoder(s, group), dec: p.far.Decoder(s, group), frames: buffer[:0]}
	f.enc.SetEffort(effort)
	return f
}

// End closes the flow and returns its buffer.
func (f *Flow) End() []byte {
	f.enc.Close()
	f.dec.Close()
	return f.frames
}

// Encoder is the flow's, for its totals, its reason and the effort.
func (f *Flow) Encoder() codec.Encoder { return f.enc }

func (f *Flow) clock() time.Duration {
	if f.Clock == nil {
		return 0
	}
	return f.Clock()
}

// Send encodes one block, 1 to codec.MaxBlock bytes, and returns how long its frame is and what encoding took.
func (f *Flow) Send(src []byte) (frame int, took time.Duration) {
	f.room(len(src))
	start := len(f.frames)
	begin := f.clock()
	f.frames = f.enc.Encode(f.frames[:start+wire.HeaderRoom], src)
	took = f.clock() - begin
	frame = len(wire.Seal(wire.TypeData, f.frames[start:]))
	f.ends = append(f.ends, len(f.frames))
	f.Encode += took
	f.RawBytes += len(src)
	f.WireBytes += frame
	f.Blocks++
	return frame, took
}

// room sees to it that the frame of a block of n bytes fits behind those that there are, so that Encode need not move them.
func (f *Flow) room(n int) {
	need := len(f.frames) + wire.HeaderRoom + n + n/16 + 4096
	if cap(f.frames) < need {
		f.frames = append(make([]byte, 0, need+need/2), f.frames...)
	}
}

// Deliver decodes and acknowledges all that was sent since it was called last, and compares it with want. After an error the
// flow is of no more use.
func (f *Flow) Deliver(want []byte) (err error) {
	start := 0
	for _, end := range f.ends {
		if want, err = f.take(f.frames[start+wire.HeaderRoom:end], want); err != nil {
			return err
		}
		start = end
	}
	if len(want) > 0 {
		return fmt.Errorf("%d bytes did not come out", len(want))
	}
	f.frames, f.ends = f.frames[:0], f.ends[:0]
	f.enc.Ack(f.dec.Decoded())
	return nil
}

// take decodes a payload, compares with the front of want, and returns what is left of that. What the decoder asks for it is
// sent.
func (f *Flow) take(payload, want []byte) ([]byte, error) {
	begin := f.clock()
	got, err := f.dec.Decode(payload)
	f.Decode += f.clock() - begin
	var ask *codec.AskError
	if errors.As(err, &ask) {
		err = f.enc.Resend(ask.Ask, func(p []byte) (err error) {
			f.WireBytes += len(wire.AppendFrame(nil, wire.TypeData, p))
			want, err = f.take(p, want)
			return err
		})
		return want, err
	}
	if err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	if len(got) > len(want) || !bytes.Equal(got, want[:len(got)]) {
		return nil, errors.New("other bytes came out than went in")
	}
	return want[len(got):], nil
}

// A Probe tells what of a flow repeats what went before in it or in other flows of the same probe: an encoder whose payloads are
// taken for decoded and thrown away.
type Probe struct {
	near *engine.Memory
	enc  codec.Encoder
	out  []byte
	sent uint64
}

// NewProbe makes a probe whose history takes so many bytes.
func NewProbe(s codec.Spec, bytes int64) (*Probe, error) {
	near, err := memory(bytes)
	if err != nil {
		return nil, err
	}
	p := &Probe{near: near}
	s.Stage = codec.StageNone
	p.enc = p.near.Encoder(s, group)
	p.enc.SetEffort(codec.EffortReferences)
	return p, nil
}

// Send takes one block, 1 to codec.MaxBlock bytes.
func (p *Probe) Send(src []byte) {
	p.out = p.enc.Encode(p.out[:0], src)
	p.sent++
	p.enc.Ack(p.sent)
}

// End closes the probe and returns how many bytes were repeats.
func (p *Probe) End() (repeated uint64) {
	p.enc.Close()
	return p.enc.Counters().RefBytes
}
