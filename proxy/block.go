// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// tinyBlock is up to which size, in bytes, nobody asks whether more is waiting behind a block: what is sent one by one matters
// for its latency, and leaves the encoder idle.
const tinyBlock = 4 << 10

// block encodes and sends one block, which it gives back to the buffers, and waits until the link asks for more.
func (o *outlet) block(raw []byte) {
	f, step := o.f, dedup.Step{RawBytes: len(raw)}
	filled := len(raw) == o.size.Bytes()
	f.sending.Lock()
	out := f.e.buffers.get(wire.HeaderRoom + len(raw) + len(raw)/16 + 256)
	began := time.Now()
	taken := false
	if o.taker != nil {
		out, taken = o.taker.EncodeTaking(out[:wire.HeaderRoom], raw, o.give)
	} else {
		out = f.enc.Encode(out[:wire.HeaderRoom], raw)
	}
	step.Encode = time.Since(began)
	f.active.Store(began.UnixNano())
	size := len(raw)
	if !taken {
		f.e.buffers.put(raw)
	}
	step.WireBytes = len(out) - wire.HeaderRoom
	step.Waiting = filled || size > tinyBlock && o.waiting()
	step.LinkBusy = step.Waiting && o.room.busy()
	frame := wire.Seal(wire.TypeData, out)
	f.encReason.Store(uint32(f.enc.Reason()))
	f.countSent(size, len(frame))
	step.LinkWait = f.writeTimed(f.withAck(frame))
	f.e.buffers.put(out)
	f.sending.Unlock()
	step.LinkWait += o.room.await()
	if next := o.governor.Next(step); next != codec.Effort(f.effort.Load()) {
		f.setEffort(next)
	}
	o.size.Sent(size, len(frame), filled)
}

func (o *outlet) waiting() bool {
	o.more = false
	_ = o.local.raw.Control(o.pending) // of a closed socket it does not matter
	return o.more
}

func (f *flow) setEffort(e codec.Effort) {
	f.effort.Store(uint32(e))
	f.enc.SetEffort(e)
}

func (f *flow) countSent(raw, wire int) {
	f.count.rawSent.Add(int64(raw))
	f.count.wireSent.Add(int64(wire))
	f.p.total.rawSent.Add(int64(raw))
	f.p.total.wireSent.Add(int64(wire))
}

// write writes frames to the leg; false if it could not. The error is left to the leg's reader: something that explains it
// may still be on its way.
func (f *flow) write(frames []byte) bool {
	err := f.leg.write(frames)
	if err != nil {
		f.leg.expire()
	}
	return err == nil
}

// writeTimed is write, and tells for how long the link took nothing.
func (f *flow) writeTimed(frames []byte) time.Duration {
	waited, err := f.leg.writeTimed(frames)
	if err != nil {
		f.leg.expire()
	}
	return waited
}
