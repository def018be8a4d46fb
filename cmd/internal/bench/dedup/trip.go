// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	engine "github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// peering is two ends with fresh histories.
type peering struct{ near, far *engine.Memory }

// newPeering makes ends that remember bound bytes, and have said hello to each other.
func newPeering(bound int64) *peering {
	p := &peering{near: engine.NewMemory(bound), far: engine.NewMemory(bound)}
	p.near.Senders.SetPeerEpoch(p.far.Receivers.Epoch())
	p.far.Receivers.SetPeerEpoch(p.near.Receivers.Epoch())
	return p
}

const group = "bench"

// passed is what carrying a file once gave.
type passed struct {
	raw, wire      int // bytes
	blocks         int
	encode, decode time.Duration // CPU time
	link           time.Duration // until the link had carried everything; 0 without a link
	effort         codec.Effort  // the last one
}

// carrier takes a file through an encoder and a decoder of a peering, in blocks, and compares every byte.
type carrier struct {
	enc    codec.Encoder
	dec    codec.Decoder
	reads  *reads
	size   sizer
	link   *link  // nil: the sink takes everything at once
	frames []byte // of one batch, one after the other
	ends   []int  // where in it each ends
	passed
}

// batchBytes is how much is encoded before it is decoded and acknowledged: less than the histories let be on the way, and
// enough that neither end finds in the processor's caches what the other one has just left there by necessity.
const batchBytes = 1 << 20

// carry sends data over a new flow. The buffers of c are used again.
func (c *carrier) carry(p *peering, s codec.Spec, effort codec.Effort, r *reads, l *link, data []byte) (passed, error) {
	c.begin(p, s, effort, r, l)
	defer c.end()
	for at := 0; at < len(data); {
		n, err := c.batch(data[at:])
		if err != nil {
			return passed{}, fmt.Errorf("%v, bytes %d to %d: %w", s, at, at+n, err)
		}
		at += n
	}
	if l != nil {
		c.passed.link = l.drained()
	}
	return c.passed, nil
}

// begin opens a flow. Without a link the effort stays what it is.
func (c *carrier) begin(p *peering, s codec.Spec, effort codec.Effort, r *reads, l *link) {
	c.enc, c.dec = p.near.Encoder(s, group), p.far.Decoder(s, group)
	c.reads, c.link, c.size = r, l, newSizer()
	c.passed = passed{effort: effort}
	c.enc.SetEffort(effort)
}

func (c *carrier) end() {
	c.enc.Close()
	c.dec.Close()
}

// batch carries some bytes from the front of data, and tells how many.
func (c *carrier) batch(data []byte) (n int, err error) {
	n = c.encodeBatch(data)
	c.raw += n
	if err := c.decodeBatch(data[:n]); err != nil {
		return n, err
	}
	c.enc.Ack(c.dec.Decoded())
	return n, nil
}

// encodeBatch encodes blocks from the front of data and returns how many bytes they hold.
func (c *carrier) encodeBatch(data []byte) int {
	c.frames, c.ends = c.frames[:0], c.ends[:0]
	at := 0
	for at < min(len(data), batchBytes) {
		src := data[at : at+c.reads.block(c.size.bytes, len(data)-at)]
		c.room(len(src))
		start := len(c.frames)
		begin := cpuTime()
		out := c.enc.Encode(c.frames[:start+wire.HeaderRoom], src)
		took := cpuTime() - begin
		frame := len(wire.Seal(wire.TypeData, out[start:]))
		c.frames, c.ends = out, append(c.ends, len(out))
		at += len(src)
		c.encode += took
		c.wire += frame
		c.blocks++
		c.size.sent(frame)
		if c.link != nil {
			c.passed.effort = c.link.send(len(src), frame, took)
			c.enc.SetEffort(c.passed.effort)
		}
	}
	return at
}

// room sees to it that a frame of a block of n bytes fits behind those that there are, so that Encode need not move them.
func (c *carrier) room(n int) {
	need := len(c.frames) + wire.HeaderRoom + n + n/16 + 4096
	if cap(c.frames) < need {
		c.frames = append(make([]byte, 0, max(need, 2*batchBytes+codec.MaxPayload)), c.frames...)
	}
}

// decodeBatch decodes the batch, which must give want.
func (c *carrier) decodeBatch(want []byte) error {
	start := 0
	for _, end := range c.ends {
		var err error
		if want, err = c.decodeOne(c.frames[start+wire.HeaderRoom:end], want); err != nil {
			return err
		}
		start = end
	}
	if len(want) > 0 {
		return fmt.Errorf("%d bytes did not come out", len(want))
	}
	return nil
}

// decodeOne decodes a payload, compares with the front of want, and returns what is left of that. What the decoder asks for
// it is sent.
func (c *carrier) decodeOne(payload, want []byte) ([]byte, error) {
	begin := cpuTime()
	got, err := c.dec.Decode(payload)
	c.decode += cpuTime() - begin
	var ask *codec.AskError
	if errors.As(err, &ask) {
		err = c.enc.Resend(ask.Ask, func(p []byte) (err error) {
			c.wire += len(wire.AppendFrame(nil, wire.TypeData, p))
			want, err = c.decodeOne(p, want)
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
