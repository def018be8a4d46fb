// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"sort"
	"time"
)

// pacer says when bytes have left the queue, first in, first out.
type pacer interface {
	// backlog is the number of bytes that still stand in the queue.
	backlog(now time.Time) float64
	// pass enters bytes into the queue and returns when the last of them has left it.
	pass(bytes int, now time.Time) time.Time
}

// ratePacer passes bytes at an even rate.
type ratePacer struct {
	rate float64   // bits per second
	free time.Time // when all that is queued has left
}

func (p *ratePacer) onWire(bytes int) time.Duration {
	return time.Duration(float64(bytes) * 8 / p.rate * 1e9)
}

func (p *ratePacer) backlog(now time.Time) float64 {
	return max(p.free.Sub(now), 0).Seconds() * p.rate / 8
}

func (p *ratePacer) pass(bytes int, now time.Time) time.Time {
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(p.onWire(bytes))
	return p.free
}

// tracePacer passes bytes at the opportunities of a trace. What is left of an opportunity serves the packet behind, if that
// is there by then; an opportunity that finds the queue empty is lost.
type tracePacer struct {
	trace *Trace
	start time.Time // when the trace began
	cycle int       // how often it has ended
	index int       // of the opportunity in use, or to be used next
	left  int       // bytes of it

	queue   []departure // what has been given its time and may still stand in the queue
	waiting int         // bytes of it
}

type departure struct {
	at    time.Time
	bytes int
}

// newTracePacer begins a trace.
func newTracePacer(t *Trace, start time.Time) *tracePacer {
	return &tracePacer{trace: t, start: start, left: opportunityBytes}
}

// begin is when the cycle that we are in began.
func (p *tracePacer) begin() time.Time { return p.start.Add(time.Duration(p.cycle) * p.trace.Length()) }

// at is when the opportunity comes.
func (p *tracePacer) at() time.Time {
	return p.begin().Add(time.Duration(p.trace.at[p.index]) * time.Millisecond)
}

func (p *tracePacer) next() {
	p.left = opportunityBytes
	if p.index++; p.index == len(p.trace.at) {
		p.index = 0
		p.cycle++
	}
}

// skip goes on to the first opportunity that has not gone by.
func (p *tracePacer) skip(now time.Time) {
	if !p.at().Before(now) {
		return
	}
	p.cycle = int(now.Sub(p.start) / p.trace.Length())
	into := now.Sub(p.begin())
	p.left = opportunityBytes
	// There is one: the cycle's length is its last.
	p.index = sort.Search(len(p.trace.at), func(i int) bool { return time.Duration(p.trace.at[i])*time.Millisecond >= into })
}

func (p *tracePacer) backlog(now time.Time) float64 {
	n := 0
	for ; n < len(p.queue) && !p.queue[n].at.After(now); n++ {
		p.waiting -= p.queue[n].bytes
	}
	p.queue = p.queue[n:]
	return float64(p.waiting)
}

func (p *tracePacer) pass(bytes int, now time.Time) time.Time {
	p.skip(now)
	need := bytes
	for need > p.left {
		need -= p.left
		p.next()
	}
	p.left -= need
	at := p.at()
	p.queue = append(p.queue, departure{at, bytes})
	p.waiting += bytes
	return at
}

// restart begins the trace anew. What stands in the queue has its time already.
func (p *tracePacer) restart(now time.Time) {
	p.start, p.cycle, p.index, p.left = now, 0, 0, opportunityBytes
}
