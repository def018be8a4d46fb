// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"sync"
	"time"
)

const (
	// A super-packet arrives as one, at the time of its last segment. On a slow link that would be late and lumpy, so
	// it is cut into parts of at most this long on the wire.
	maxPartTime = 2 * time.Millisecond

	// Packets on their way, beyond which arrivals count as dropped by the queue: 16 MB x 2 in segments of one MTU.
	maxInFlight = 1 << 15
)

// pipe is one direction in this process: from one TUN device to the other.
type pipe struct {
	in, out *os.File
	transit chan arrival
	done    chan struct{}
	wait    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	shape shape
	odds  odds
	rate  *ratePacer
	trace *tracePacer // instead of rate, if not nil
	stat  Stats
	truth *truth
	chain chain
	last  time.Time // when the packet before arrives: order is kept when the delay shrinks
}

type arrival struct {
	due time.Time
	raw []byte
}

// spare are buffers of super-packets that have arrived: without them a gigabit is 120 MB of garbage a second, and collecting
// it makes the link late.
var spare sync.Pool

// spareLeast is the least packet that has one of them, in bytes: small ones would hold large buffers.
const spareLeast = 16 << 10

func spareBuffer(n int) []byte {
	if n < spareLeast {
		return nil
	}
	if b, ok := spare.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

// newPipe starts a direction; trace may be nil.
func newPipe(in, out *os.File, s shape, key uint64, trace *Trace, dscp uint8) *pipe {
	p := &pipe{
		in: in, out: out,
		transit: make(chan arrival, maxInFlight),
		done:    make(chan struct{}),
		rate:    &ratePacer{rate: s.rate},
		truth:   newTruth(dscp),
		chain:   chain{key: key},
	}
	if trace != nil {
		p.trace = newTracePacer(trace, time.Now())
	}
	_ = p.reshape(s)
	p.wait.Go(p.receive)
	p.wait.Go(p.deliver)
	return p
}

func (p *pipe) reshape(s shape) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trace != nil {
		s.rate = p.trace.trace.Rate()
	}
	p.shape, p.odds, p.rate.rate = s, s.odds(), s.rate
	return nil
}

func (p *pipe) restart(key uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chain = chain{key: key}
	p.stat.LateMax = 0
	if p.trace != nil {
		p.trace.restart(time.Now())
	}
	return nil
}

func (p *pipe) stats() (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stat, nil
}

// stop ends the direction. It closes the device, since that is what ends a read.
func (p *pipe) stop() {
	close(p.done)
	_ = p.in.Close()
	p.wait.Wait()
}

func (p *pipe) pacer() pacer {
	if p.trace != nil {
		return p.trace
	}
	return p.rate
}

func (p *pipe) receive() {
	buf := make([]byte, 1<<17)
	for {
		n, err := p.in.Read(buf)
		if err != nil {
			return
		}
		// Multicast is the housekeeping of a local network: no wide-area link carries it.
		if pkt, ok := parse(buf[:n]); ok && !pkt.multi {
			p.accept(&pkt, time.Now())
		}
	}
}

// accept lets a packet enter the link: each of its segments is queued, or lost. Neighbours with the same fate stay
// together.
func (p *pipe) accept(pkt *packet, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stat.Packets++
	p.stat.Segments += uint64(pkt.segments)
	p.truth.observe(pkt, &p.stat)
	p.stat.LateMax = max(p.stat.LateMax, p.truth.waited(pkt, now))
	data := pkt.tcp && pkt.payload() > 0
	numbered := data || !p.shape.dataOnly
	if p.shape.mark && data && pkt.markCE() {
		p.stat.MarkedCE += uint64(pkt.segments)
	}

	first, size := 0, 0 // the part that is being gathered
	for i := range pkt.segments {
		n := pkt.segmentSize(i)
		p.stat.Bytes += uint64(n)
		if p.lost(numbered, size+n, now) {
			p.send(pkt, first, i, size, now)
			first, size = i+1, 0
			continue
		}
		if size > 0 && p.tooLong(size+n) {
			p.send(pkt, first, i, size, now)
			first, size = i, 0
		}
		size += n
	}
	p.send(pkt, first, pkt.segments, size, now)
}

// tooLong says whether a part of so many bytes would arrive lumpy.
func (p *pipe) tooLong(bytes int) bool {
	return p.trace != nil || p.rate.onWire(bytes) > maxPartTime
}

// lost decides on a segment; waiting is the bytes that would stand in the queue with it beyond those already sent.
func (p *pipe) lost(numbered bool, waiting int, now time.Time) bool {
	// It has its number whatever happens to it, so that a seed means the same losses on a fuller queue.
	unlucky := numbered && p.chain.lost(p.odds)
	switch {
	case p.shape.down:
		p.stat.DownDrops++
	case unlucky:
		p.stat.Lost++
	case p.pacer().backlog(now)+float64(waiting) > p.shape.queueLimit():
		p.stat.QueueDrops++
	default:
		return false
	}
	return true
}

// send puts the segments from first to last (not included), size bytes in all, on their way.
func (p *pipe) send(pkt *packet, first, last, size int, now time.Time) {
	if last <= first {
		return
	}
	var raw []byte
	if first == 0 && last == pkt.segments {
		raw = append(spareBuffer(len(pkt.raw)), pkt.raw...) // the reader's buffer is used again
	} else {
		raw = pkt.part(first, last)
	}
	due := p.pacer().pass(size, now).Add(p.shape.delay())
	if due.Before(p.last) {
		due = p.last
	}
	p.last = due
	select {
	case p.transit <- arrival{due, raw}:
	default:
		p.stat.QueueDrops += uint64(last - first)
	}
}

// deliver hands packets to the other site when their time has come.
func (p *pipe) deliver() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.done:
			return
		case a := <-p.transit:
			if wait := time.Until(a.due); wait > 20*time.Microsecond {
				timer.Reset(wait)
				select {
				case <-p.done:
					return
				case <-timer.C:
				}
			}
			p.hand(a)
		}
	}
}

func (p *pipe) hand(a arrival) {
	p.mu.Lock()
	if p.shape.down {
		p.stat.DownDrops++
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()

	_, err := p.out.Write(a.raw)
	if cap(a.raw) >= spareLeast {
		spare.Put(&a.raw)
	}
	late := max(time.Since(a.due), 0)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.stat.Delivered++
	p.stat.LateSum += late
	p.stat.LateMax = max(p.stat.LateMax, late)
	if err != nil {
		p.stat.WriteErrors++
	}
}
