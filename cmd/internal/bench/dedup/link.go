// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"time"

	engine "github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// link is a sink that drains at a rate. Nothing sleeps: its clock runs by the CPU time that encoding took and by the time that
// the rate says the bytes need, so the result does not depend on what else the machine does, and a slow link costs no time.
//
// As in the engine, a block is encoded only when the link asks for more: when less than half of a mark waits to be sent. The block
// holds what has been read until then, which is always as much as a block takes, since a file has more to send until it ends.
type link struct {
	bytesPerSecond float64
	mark           float64 // bytes
	governor       *engine.Governor
	now            time.Duration // the sender's clock
	empty          time.Duration // when all that waits will have been sent
}

// The mark is what the link sends in markTime, within bounds in bytes: those of the engine.
const (
	markTime  = 16 * time.Millisecond
	markLeast = 32 << 10
	markMost  = 1 << 20
)

func newLink(bitsPerSecond float64) *link {
	l := &link{bytesPerSecond: bitsPerSecond / 8, governor: engine.NewGovernor()}
	l.mark = min(max(l.bytesPerSecond*markTime.Seconds(), markLeast), markMost)
	return l
}

func (l *link) time(bytes float64) time.Duration {
	return time.Duration(bytes / l.bytesPerSecond * float64(time.Second))
}

// send gives a frame to the link, which took encode to make of raw bytes, waits until the link asks for more, and returns the
// effort for the next block.
func (l *link) send(raw, frame int, encode time.Duration) codec.Effort {
	l.now += encode
	busy := l.empty > l.now
	l.empty = max(l.empty, l.now) + l.time(float64(frame))
	wait := max(l.empty-l.time(l.mark/2)-l.now, 0)
	l.now += wait
	return l.governor.Next(engine.Step{RawBytes: raw, WireBytes: frame, Encode: encode, LinkWait: wait, LinkBusy: busy, Waiting: true})
}

// drained is when the last byte has left.
func (l *link) drained() time.Duration { return max(l.empty, l.now) }
