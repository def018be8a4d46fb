// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/twoends"
	engine "github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// passed is what carrying a file once gave.
type passed struct {
	raw, wire      int // bytes
	blocks         int
	encode, decode time.Duration // CPU time
	link           time.Duration // until the link had carried everything; 0 without a link
	effort         codec.Effort  // the last one
}

// carriage is how a file is carried.
type carriage struct {
	spec   codec.Spec
	effort codec.Effort // if there is no link
	reads  *reads
	link   *link // nil: the sink takes everything at once
}

// batchBytes is how much is encoded before it is decoded and acknowledged: less than the histories let be on the way, and
// enough that neither end finds in the processor's caches what the other one has just left there.
const batchBytes = 1 << 20

// carry sends data over a new flow. The buffer is used again.
func (c carriage) carry(p *twoends.Peering, data []byte, buffer *[]byte) (passed, error) {
	f := p.Begin(c.spec, c.effort, *buffer)
	defer func() { *buffer = f.End() }()
	f.Clock = cpuTime
	got := passed{effort: c.effort}
	size := engine.NewBlockSize()
	for at := 0; at < len(data); {
		from := at
		for at < min(len(data), from+batchBytes) {
			n := c.reads.block(size.Bytes(), len(data)-at)
			frame, took := f.Send(data[at : at+n])
			size.Sent(n, frame, at+n < len(data))
			if c.link != nil {
				got.effort = c.link.send(n, frame, took)
				f.Encoder().SetEffort(got.effort)
			}
			at += n
		}
		if err := f.Deliver(data[from:at]); err != nil {
			return passed{}, fmt.Errorf("%v, bytes %d to %d: %w", c.spec, from, at, err)
		}
	}
	if c.link != nil {
		got.link = c.link.drained()
	}
	got.raw, got.wire, got.blocks, got.encode, got.decode = f.RawBytes, f.WireBytes, f.Blocks, f.Encode, f.Decode
	return got, nil
}
