// SPDX-License-Identifier: Apache-2.0

package estimate

import "slices"

// mostLanes directions have an encoder at the same time: each holds a compressor at both ends. A direction that goes on after its
// lane was taken away gets another one, as if it were a new flow, with the same history.
const mostLanes = 64

// probeBytes is how far back repeats within a flow are looked for; the rest counts as earlier.
const probeBytes = 4 << 20

// lanes are those in use.
type lanes struct {
	estimator *estimator
	open      []*half
	clock     uint64
}

// touch sees to it that a direction has a lane.
func (l *lanes) touch(h *half) error {
	l.clock++
	h.used = l.clock
	if h.lane != nil {
		return nil
	}
	var err error
	if len(l.open) >= mostLanes {
		err = l.oldest().close()
	}
	peering := l.estimator.up
	if h.dir == fromServer {
		peering = l.estimator.down
	}
	lane, failure := newLane(peering, l.estimator.Spec, min(probeBytes, l.estimator.History), nil)
	if failure != nil {
		return failure
	}
	h.lane = lane
	h.spot = len(l.open)
	l.open = append(l.open, h)
	return err
}

func (l *lanes) oldest() *half {
	return slices.MinFunc(l.open, func(a, b *half) int { return int(int64(a.used - b.used)) })
}

// remove takes a direction out.
func (l *lanes) remove(h *half) {
	last := l.open[len(l.open)-1]
	l.open[h.spot], last.spot = last, h.spot
	l.open = l.open[:len(l.open)-1]
	h.spot = -1
}

// closeAll ends all of a capture's lanes, the one unused for longest first, so that two runs give the same.
func (l *lanes) closeAll(c *capturing) {
	for len(l.open) > 0 {
		h := l.oldest()
		if err := h.close(); err != nil && c.err == nil {
			c.err = err
		}
	}
}
