// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

const (
	// MinQueue is the least length of the drop-tail queue in bytes: an initial window must fit in it.
	MinQueue = 30000

	// A super-packet arrives as one, at the time of its last segment. On a slow link that would be late and lumpy, so
	// it is cut into parts of at most this long on the wire.
	maxPartTime = 2 * time.Millisecond

	// Packets on their way, beyond which arrivals count as dropped by the queue: 16 MB x 2 in segments of one MTU.
	maxInFlight = 1 << 15
)

// Link is the wide-area network between the sites. What is set holds for packets that enter from then on.
type Link struct {
	AB, BA *Direction // from A to B, and back
	wait   sync.WaitGroup
}

func newLink(a, b *os.File, o Options) *Link {
	l := &Link{AB: newDirection(a, b, o, 1), BA: newDirection(b, a, o, 2)}
	for _, d := range []*Direction{l.AB, l.BA} {
		l.wait.Go(d.receive)
		l.wait.Go(d.deliver)
	}
	return l
}

// stop ends the link. It closes the devices, since that is what ends a read.
func (l *Link) stop() {
	for _, d := range []*Direction{l.AB, l.BA} {
		close(d.done)
		_ = d.in.Close()
	}
	l.wait.Wait()
}

// SetRate sets the rate of both directions in bits per second.
func (l *Link) SetRate(bitps uint64) {
	l.AB.SetRate(bitps)
	l.BA.SetRate(bitps)
}

// SetRTT sets the delay of the empty link, half of it in each direction.
func (l *Link) SetRTT(rtt time.Duration) {
	l.AB.set(func(s *shape) { s.rtt = rtt })
	l.BA.set(func(s *shape) { s.rtt = rtt })
}

// SetLoss sets the probability, 0 to 1, that a segment is lost, in both directions.
func (l *Link) SetLoss(p float64) {
	l.AB.SetLoss(p)
	l.BA.SetLoss(p)
}

// SetDown cuts the link or mends it: while it is down every packet that enters or would arrive is lost.
func (l *Link) SetDown(down bool) {
	l.AB.set(func(s *shape) { s.down = down })
	l.BA.set(func(s *shape) { s.down = down })
}

// Stats gives the sum of both directions.
func (l *Link) Stats() Stats { return l.AB.Stats().Add(l.BA.Stats()) }

// shape is what can be changed while packets flow.
type shape struct {
	rate     float64 // bits per second
	rtt      time.Duration
	loss     float64
	queueBDP float64
	down     bool
}

// queueLimit is the length of the drop-tail queue in bytes.
func (s *shape) queueLimit() float64 {
	return max(s.rate/8*s.rtt.Seconds()*s.queueBDP, MinQueue)
}

func (s *shape) onWire(bytes int) time.Duration {
	return time.Duration(float64(bytes) * 8 / s.rate * 1e9)
}

// Direction is one way of the link.
type Direction struct {
	in, out *os.File
	transit chan arrival
	done    chan struct{}

	mu    sync.Mutex // guards what follows
	shape shape
	stats Stats
	truth *truth
	rng   *rand.Rand
	free  time.Time // when the link has sent all that is queued
	last  time.Time // when the packet before arrives: order is kept when the delay shrinks
}

type arrival struct {
	due time.Time
	raw []byte
}

func newDirection(in, out *os.File, o Options, stream uint64) *Direction {
	return &Direction{
		in: in, out: out,
		transit: make(chan arrival, maxInFlight),
		done:    make(chan struct{}),
		shape:   shape{rate: float64(o.Rate), rtt: o.RTT, loss: o.Loss, queueBDP: o.QueueBDP},
		truth:   newTruth(o.DSCP),
		rng:     rand.New(rand.NewPCG(o.Seed, stream)),
	}
}

func (d *Direction) set(f func(*shape)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.shape)
}

// SetRate sets the rate in bits per second; 0 is ignored.
func (d *Direction) SetRate(bitps uint64) {
	if bitps > 0 {
		d.set(func(s *shape) { s.rate = float64(bitps) })
	}
}

// SetLoss sets the probability, 0 to 1, that a segment is lost.
func (d *Direction) SetLoss(p float64) { d.set(func(s *shape) { s.loss = p }) }

// Stats reads the counters since the lab began.
func (d *Direction) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

func (d *Direction) receive() {
	buf := make([]byte, 1<<17)
	for {
		n, err := d.in.Read(buf)
		if err != nil {
			return
		}
		// Multicast is the housekeeping of a local network: no wide-area link carries it.
		if p, ok := parse(buf[:n]); ok && !p.multi {
			d.accept(&p, time.Now())
		}
	}
}

// accept lets a packet enter the link: each of its segments is queued, or lost. Neighbours with the same fate stay
// together.
func (d *Direction) accept(p *packet, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Packets++
	d.stats.Segments += uint64(p.segments)
	d.truth.observe(p, &d.stats)

	first, size := 0, 0 // the part that is being gathered
	for i := range p.segments {
		n := p.segmentSize(i)
		d.stats.Bytes += uint64(n)
		if d.lost(size+n, now) {
			d.send(p, first, i, size, now)
			first, size = i+1, 0
			continue
		}
		if size > 0 && d.shape.onWire(size+n) > maxPartTime {
			d.send(p, first, i, size, now)
			first, size = i, 0
		}
		size += n
	}
	d.send(p, first, p.segments, size, now)
}

// lost decides on a segment; waiting is the bytes that would stand in the queue with it beyond those already sent.
func (d *Direction) lost(waiting int, now time.Time) bool {
	backlog := 0.0
	if d.free.After(now) {
		backlog = d.free.Sub(now).Seconds() * d.shape.rate / 8
	}
	// Drawn for each segment whatever happens to it, so that a seed means the same losses on a fuller queue.
	unlucky := d.rng.Float64() < d.shape.loss
	switch {
	case d.shape.down:
		d.stats.DownDrops++
	case unlucky:
		d.stats.Lost++
	case backlog+float64(waiting) > d.shape.queueLimit():
		d.stats.QueueDrops++
	default:
		return false
	}
	return true
}

// send puts the segments from first to last (not included), size bytes in all, on their way.
func (d *Direction) send(p *packet, first, last, size int, now time.Time) {
	if last <= first {
		return
	}
	var raw []byte
	if first == 0 && last == p.segments {
		raw = append(raw, p.raw...) // the reader's buffer is used again
	} else {
		raw = p.part(first, last)
	}
	if d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(d.shape.onWire(size))
	due := d.free.Add(d.shape.rtt / 2)
	if due.Before(d.last) {
		due = d.last
	}
	d.last = due
	select {
	case d.transit <- arrival{due, raw}:
	default:
		d.stats.QueueDrops += uint64(last - first)
	}
}

// deliver hands packets to the other site when their time has come.
func (d *Direction) deliver() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.done:
			return
		case a := <-d.transit:
			if wait := time.Until(a.due); wait > 20*time.Microsecond {
				timer.Reset(wait)
				select {
				case <-d.done:
					return
				case <-timer.C:
				}
			}
			d.hand(a)
		}
	}
}

func (d *Direction) hand(a arrival) {
	d.mu.Lock()
	if d.shape.down {
		d.stats.DownDrops++
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()

	_, err := d.out.Write(a.raw)
	late := max(time.Since(a.due), 0)

	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Delivered++
	d.stats.LateSum += late
	d.stats.LateMax = max(d.stats.LateMax, late)
	if err != nil {
		d.stats.WriteErrors++
	}
}
