// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"time"
)

// Linux stamps each TCP segment with the millisecond in which it sends it, from an origin of the connection's own (RFC 7323). So
// the stamps say how long packets waited before this process, which a busy machine does not let run, took them onto the link:
// they then come in a burst that the sender did not send, and may find the queue full.

// The option of RFC 7323.
const (
	optionEnd       = 0
	optionNothing   = 1
	optionStamp     = 8
	optionStampSize = 10
)

// origin of this process's milliseconds: by a clock that nobody sets.
var origin = time.Now()

// stamp gives the sender's time stamp in ms; ok is false where the packet has none.
func (p *packet) stamp() (ms uint32, ok bool) {
	options := p.raw[vnetHeader+p.ipHeader+20 : vnetHeader+p.headers]
	for len(options) > 0 && options[0] != optionEnd {
		if options[0] == optionNothing {
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return 0, false
		}
		if options[0] == optionStamp && options[1] == optionStampSize {
			return binary.BigEndian.Uint32(options[2:]), true
		}
		options = options[options[1]:]
	}
	return 0, false
}

// waited is how long a packet with payload waited to be taken, beyond what the quickest of its connection did; to a millisecond.
func (t *truth) waited(p *packet, now time.Time) time.Duration {
	if !p.tcp || p.payload() == 0 {
		return 0
	}
	ms, ok := p.stamp()
	if !ok {
		return 0
	}
	f := t.flow(p)
	age := uint32(now.Sub(origin).Milliseconds()) - ms // counts from the connection's origin, and around
	if behind := int32(age - f.leastAge); f.aged && behind >= 0 {
		return time.Duration(behind) * time.Millisecond
	}
	f.aged, f.leastAge = true, age
	return 0
}
