// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"time"
)

// What is remembered of a path: seconds, and losses.
const (
	maxSeconds = 32
	maxLosses  = 48
	lossAge    = 20 * time.Second
	maxHistory = 16
	flowAge    = time.Minute     // without an update: its end was missed
	maxGap     = 5 * time.Second // between two ticks
)

// path is what is known of one.
type path struct {
	id       Path
	flows    map[uint64]seenFlow
	seconds  []second // the latest last
	losses   []Loss   // the latest last
	learned  map[lesson]result
	rttMinUs uint32
	updated  time.Time

	chosen, previous, why string
	class                 Class
	since                 time.Time
	changes               []time.Time // within the last hour
	history               []Change    // the latest last, and flows that began anew among them
	lossAtChoice          float64
	explored              time.Time
	pending               Class     // what the last tick saw, if it is not class
	renewed               time.Time // when flows last began anew for a longer path
	renewedUs             uint32    // the round trip that they were to learn then, or a lesser one since; 0: none
	renewHold             time.Duration
	renewals              uint32 // how often they were told
}

// seenFlow is a flow as of the tick before.
type seenFlow struct {
	Flow
	at time.Time
}

// second is what the flows of a path did between two ticks.
type second struct {
	at          time.Time
	took        time.Duration
	bytes       uint64 // acknowledged
	segments    uint64 // sent
	retransmits uint64
	rateBps     uint64 // bytes per second: the sum of the latest samples of the flows at work
	srttMinUs   uint32
	srttMaxUs   uint32
	rttMinUs    uint32 // the least that a flow at work knows of
	chosen      bool   // the flows at work have what is chosen
	bulk        bool   // they sent as fast as the path let them
}

func (s *second) goodputBps() float64 { return float64(s.bytes) / s.took.Seconds() }

// bulkShare is how much of the rate at which a flow's data arrived it must have kept up over a second to count as one that the
// path holds back, and not the application.
const bulkShare = 0.5

// minBulkBytes is the least in a second that says anything of an algorithm.
const minBulkBytes = 32 << 10

// observe adds a second.
func (p *path) observe(now time.Time, flows []Flow) {
	s := second{at: now, took: time.Second, chosen: true}
	if n := len(p.seconds); n > 0 {
		if gap := now.Sub(p.seconds[n-1].at); gap < maxGap { // else there were no flows meanwhile
			s.took = max(gap, 100*time.Millisecond)
		}
	}
	p.updated = now
	for _, f := range flows {
		p.observeFlow(&s, f, now)
		p.flows[f.Cookie] = seenFlow{f, now}
	}
	for cookie, f := range p.flows {
		if now.Sub(f.at) > flowAge {
			delete(p.flows, cookie)
		}
	}
	p.seconds = append(p.seconds, s)
	if len(p.seconds) > maxSeconds {
		p.seconds = p.seconds[1:]
	}
	for len(p.losses) > 0 && now.Sub(p.losses[0].At) > lossAge {
		p.losses = p.losses[1:]
	}
}

func (p *path) observeFlow(s *second, f Flow, now time.Time) {
	before, known := p.flows[f.Cookie]
	switch {
	case !known && f.Age > 2*s.took: // its counters are of a time that nobody watched
		return
	case !known || f.BytesAcked < before.BytesAcked:
		before.Flow = Flow{}
	}
	bytes := f.BytesAcked - before.BytesAcked
	s.bytes += bytes
	s.segments += uint64(f.SegsOut - before.SegsOut)
	s.retransmits += uint64(f.Retransmits - before.Retransmits)
	if f.RTTMinUs > 0 && (p.rttMinUs == 0 || f.RTTMinUs < p.rttMinUs) {
		p.rttMinUs = f.RTTMinUs
	}
	if bytes < minBulkBytes || float64(bytes)/s.took.Seconds() < bulkShare*float64(f.DeliveredBps) {
		return
	}
	s.bulk = true
	s.rateBps += f.DeliveredBps
	s.chosen = s.chosen && family(f.Congestion) == family(p.chosen)
	if f.SRTTUs > 0 {
		s.srttMaxUs = max(s.srttMaxUs, f.SRTTUs)
		if s.srttMinUs == 0 || f.SRTTUs < s.srttMinUs {
			s.srttMinUs = f.SRTTUs
		}
		p.renewedUs = min(p.renewedUs, f.SRTTUs)
	}
	if f.RTTMinUs > 0 && (s.rttMinUs == 0 || f.RTTMinUs < s.rttMinUs) {
		s.rttMinUs = f.RTTMinUs
	}
}

// note keeps a change for those who ask.
func (p *path) note(ch Change) Change {
	p.history = append(p.history, ch)
	if len(p.history) > maxHistory {
		p.history = p.history[1:]
	}
	return ch
}

// lost adds a loss event.
func (p *path) lost(l Loss) {
	p.losses = append(p.losses, l)
	if len(p.losses) > maxLosses {
		p.losses = p.losses[1:]
	}
}

// span sums up the latest seconds in bulk under what is chosen, n at most, since some time.
type span struct {
	from                  time.Time // when the first of them began
	seconds               int
	goodputBps            float64
	segments, retransmits uint64
	rateBps               uint64 // the highest
	srttMinUs, srttMaxUs  uint32
}

func (p *path) span(n int, since time.Time) span {
	var o span
	var bytes, took float64
	for i := len(p.seconds) - 1; i >= 0 && o.seconds < n; i-- {
		s := &p.seconds[i]
		if s.at.Before(since) {
			break
		}
		if !s.bulk || !s.chosen {
			continue
		}
		o.seconds++
		o.from = s.at.Add(-s.took)
		bytes += float64(s.bytes)
		took += s.took.Seconds()
		o.segments += s.segments
		o.retransmits += s.retransmits
		o.rateBps = max(o.rateBps, s.rateBps)
		o.srttMaxUs = max(o.srttMaxUs, s.srttMaxUs)
		if o.srttMinUs == 0 || s.srttMinUs > 0 && s.srttMinUs < o.srttMinUs {
			o.srttMinUs = s.srttMinUs
		}
	}
	if took > 0 {
		o.goodputBps = bytes / took
	}
	return o
}

func (o *span) lossRate() float64 {
	if o.segments == 0 {
		return 0
	}
	return float64(o.retransmits) / float64(o.segments)
}
