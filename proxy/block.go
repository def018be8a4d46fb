// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// Sizes in bytes of what is read for one block. It grows while reads fill it and blocks stay small on the wire, and
// shrinks when they do not: a block is delivered only when all of it has arrived.
const (
	readLeast  = 64 << 10
	readMost   = wire.MaxBlock
	frameSmall = 32 << 10
	frameLarge = 128 << 10
	frameTiny  = 64 // part of the raw bytes below which a block is next to nothing on the wire
)

// tinyBlock is up to which size, in bytes, nobody asks whether more is waiting behind a block: what is sent one by one matters
// for its latency, and leaves the encoder idle.
const tinyBlock = 4 << 10

// block encodes and sends one block, which it gives back to the buffers, and waits until the link asks for more.
func (o *outlet) block(raw []byte) {
	f, step := o.f, dedup.Step{RawBytes: len(raw)}
	filled := len(raw) == o.size
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
	o.resize(size, len(frame), filled)
}

func (o *outlet) waiting() bool {
	o.more = false
	_ = o.local.raw.Control(o.pending) // of a closed socket it does not matter
	return o.more
}

// resize sets the size of the next read.
func (o *outlet) resize(raw, frame int, filled bool) {
	switch {
	case frame > frameLarge:
		o.size = max(o.size/2, readLeast)
	case filled && frame < raw/frameTiny:
		o.size = min(o.size*4, readMost)
	case filled && frame < frameSmall:
		o.size = min(o.size*2, readMost)
	}
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
