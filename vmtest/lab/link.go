// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"sync"
	"time"
)

// MinQueue is the least length of the drop-tail queue in bytes: an initial window must fit in it.
const MinQueue = 30000

// Emulation is who delays packets.
type Emulation int

// The emulations. They differ in what they need, how exact they are and what they can count, not in what is lost.
const (
	// InProcess: this process reads packets from one site's device and writes them to the other's. It runs on every kernel,
	// with super-packets at a gigabit, and knows what was sent twice; it is late by a fraction of a millisecond, and by
	// more on a busy machine (Stats.LateMax).
	InProcess Emulation = iota
	// InKernel: a namespace between the sites routes, and has netem at its egress. Exact by the kernel's clock, one
	// packet at a time; it needs a kernel with netem (HaveNetem).
	InKernel
)

// Link is the wide-area network between the sites. What is set holds for packets that enter from then on.
type Link struct {
	AB, BA *Direction // from A to B, and back
}

// SetRate sets the rate of both directions in bits per second.
func (l *Link) SetRate(bitps uint64) {
	l.AB.SetRate(bitps)
	l.BA.SetRate(bitps)
}

// SetRTT sets the delay of the empty link: half of it in each direction, or all from A to B in a lab with OneWay.
func (l *Link) SetRTT(rtt time.Duration) {
	l.AB.set(func(s *shape) { s.rtt = rtt })
	l.BA.set(func(s *shape) { s.rtt = rtt })
}

// SetLoss sets the share of packets, 0 to 1, that is lost, in both directions.
func (l *Link) SetLoss(p float64) {
	l.AB.SetLoss(p)
	l.BA.SetLoss(p)
}

// SetDown cuts the link or mends it: while it is down every packet that enters is lost, and in-process also those that would
// arrive.
func (l *Link) SetDown(down bool) {
	l.AB.set(func(s *shape) { s.down = down })
	l.BA.set(func(s *shape) { s.down = down })
}

// Restart counts packets from 0 again and loses them by this seed, and begins the trace and LateMax anew: what follows on an
// idle link meets the same as after any other Restart with this seed.
func (l *Link) Restart(seed uint64) {
	l.AB.restart(seed)
	l.BA.restart(seed)
}

// Stats gives the sum of both directions.
func (l *Link) Stats() Stats { return l.AB.Stats().Add(l.BA.Stats()) }

// Err says what the kernel refused when it was asked to change the link, or to say what it carried: the first error of each
// direction. nil: nothing. In-process there is nobody to refuse.
func (l *Link) Err() error { return errors.Join(l.AB.failed(), l.BA.failed()) }

func (l *Link) stop() {
	l.AB.stop()
	l.BA.stop()
}

// shape is what can be changed while packets flow, and what follows from it.
type shape struct {
	rate       float64 // bits per second; of a trace its mean
	rtt        time.Duration
	share      float64 // of the round trip that this direction takes
	loss       float64
	burst      float64 // packets
	dataOnly   bool    // only TCP segments with payload have numbers and are lost
	queueBDP   float64
	queueBytes uint64 // instead of queueBDP, if not 0
	down       bool
	mark       bool // what is ECN-capable gets CE
	mtu        int
}

// shapes are those of the two directions.
func (o Options) shapes() (ab, ba shape) {
	ab = shape{rate: float64(o.Rate), rtt: o.RTT, share: 0.5, loss: o.Loss, burst: o.Burst, dataOnly: o.LossAB,
		queueBDP: o.QueueBDP, queueBytes: o.QueueBytes, mtu: o.MTU}
	if o.OneWay {
		ab.share = 1
	}
	ba = ab
	ba.share = 1 - ab.share
	if o.LossAB {
		ba.loss = 0
	}
	return ab, ba
}

// delay is how long a packet is on its way once it has left the queue.
func (s *shape) delay() time.Duration { return time.Duration(float64(s.rtt) * s.share) }

func (s *shape) odds() odds { return newOdds(s.loss, s.burst) }

// queueLimit is the length of the drop-tail queue in bytes.
func (s *shape) queueLimit() float64 {
	if s.queueBytes > 0 {
		return max(float64(s.queueBytes), MinQueue)
	}
	return max(s.rate/8*s.rtt.Seconds()*s.queueBDP, MinQueue)
}

// The directions by number, which makes their losses different ones.
const (
	numberAB = 1
	numberBA = 2
)

// way is what carries packets in one direction.
type way interface {
	reshape(shape) error
	restart(key uint64) error
	stats() (Stats, error)
	stop()
}

// Direction is one way of the link.
type Direction struct {
	number uint64

	mu      sync.Mutex // guards what follows
	shape   shape
	way     way
	stopped bool
	last    Stats // as read last
	err     error // the first
}

// newDirection begins on a way that has the shape already.
func newDirection(w way, s shape, number uint64) *Direction {
	return &Direction{number: number, shape: s, way: w}
}

func (d *Direction) set(f func(*shape)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.shape)
	if !d.stopped {
		d.note(d.way.reshape(d.shape))
	}
}

func (d *Direction) restart(seed uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.note(d.way.restart(lossKey(seed, d.number)))
	}
}

func (d *Direction) note(err error) {
	if d.err == nil {
		d.err = err
	}
}

// SetRate sets the rate in bits per second; 0 is ignored, and so is every rate where a trace has it.
func (d *Direction) SetRate(bitps uint64) {
	if bitps > 0 {
		d.set(func(s *shape) { s.rate = float64(bitps) })
	}
}

// SetLoss sets the share of packets, 0 to 1, that is lost.
func (d *Direction) SetLoss(p float64) { d.set(func(s *shape) { s.loss = p }) }

// SetMark has the direction say in each TCP segment with payload whose ends can read it that there was congestion (ECN), or
// not any more. Only in-process; nothing is marked otherwise.
func (d *Direction) SetMark(on bool) { d.set(func(s *shape) { s.mark = on }) }

// Stats reads the counters since the lab began; of a closed lab the last ones, and if the kernel does not tell them those
// read before (see Link.Err).
func (d *Direction) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read()
	return d.last
}

// read asks for the counters while there is somebody to ask.
func (d *Direction) read() {
	if d.stopped {
		return
	}
	st, err := d.way.stats()
	if err != nil {
		d.note(err)
		return
	}
	d.last = st
}

func (d *Direction) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Direction) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	d.read()
	d.way.stop()
	d.stopped = true
}
