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
// A frame goes into a buffer as a socket has one. While that is full the sender waits, and the block that it encodes next
// holds what has been read in the meantime: that is always as much as a block takes, since a file has more to send until it ends.
type link struct {
	bytesPerSecond float64
	governor       *engine.Governor
	now            time.Duration // the sender's clock
	empty          time.Duration // when the buffer will have drained
}

// linkBuffer is what the sender's socket holds, in bytes.
const linkBuffer = 256 << 10

func newLink(bitsPerSecond float64) *link {
	return &link{bytesPerSecond: bitsPerSecond / 8, governor: engine.NewGovernor()}
}

func (l *link) time(bytes float64) time.Duration {
	return time.Duration(bytes / l.bytesPerSecond * float64(time.Second))
}

// send puts a frame into the buffer, which took encode to make of raw bytes, and returns the effort for the next one.
func (l *link) send(raw, frame int, encode time.Duration) codec.Effort {
	l.now += encode
	busy := l.empty > l.now
	l.empty = max(l.empty, l.now) + l.time(float64(frame))
	wait := max(l.empty-l.time(linkBuffer)-l.now, 0)
	l.now += wait
	return l.governor.Next(engine.Step{RawBytes: raw, WireBytes: frame, Encode: encode, LinkWait: wait, LinkBusy: busy, Waiting: true})
}

// drained is when the last byte has left.
func (l *link) drained() time.Duration { return max(l.empty, l.now) }
