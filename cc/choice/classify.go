// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"time"
)

// The bounds of the classes.
const (
	// minLosses is how many loss events are evidence.
	minLosses = 6
	// A queue stands if the smoothed RTT is above the least lately by both of these: the first finds a queue of a tenth of the
	// path, the second is above what timers and neighbours do to a short round trip. And it holds more than queuePackets, since
	// those that a flow sends in a row wait for each other anyway.
	queueShare   = 0.05
	queueFloor   = 1000 // us
	queuePackets = 3
	// Up to deepShare a round trip may also be late because a host or a radio link was. A queue keeps the link busy: a loss that it
	// causes finds the flow at busyShare of the highest rate that it had at a loss, at least, by its latest sample or by its
	// window: samples are of some packets only, and differ widely where a link sends in bursts.
	deepShare = 0.5
	busyShare = 0.6
	// noQueueShare of the losses must come without a queue before they count as noise: a queue's own losses are seen without
	// one now and then, since a flow that halved its window emptied it before the loss of a neighbour is repaired.
	noQueueShare = 0.25
	// shallowShare is the length of a queue in round trips below which it is short.
	shallowShare = 0.3
	// cleanSeconds in bulk without a loss event are a clean path.
	cleanSeconds = 10
	// baseAge is how far back the least RTT is looked for.
	baseAge = 4 * time.Second
)

// The bounds within which an algorithm that ignores losses stays.
const (
	noiseSeconds = 10   // in bulk, at least, before it is judged
	quietLoss    = 1e-4 // below, every algorithm fills the path
	floodLoss    = 0.02 // above, and
	floodFactor  = 3.0  // so many times what it was when chosen: the path is another, or the losses are its own
)

// verdict is what a path looks like now.
type verdict struct {
	class Class
	why   string
}

// classify says what losses come from, by what the present algorithm met.
func (p *path) classify() verdict {
	if ignoresLoss(p.chosen) {
		return p.classifyUnderNoise()
	}
	n, queued, queueUs := p.queued()
	bulk := p.span(cleanSeconds, p.since)
	switch {
	case n == 0 && bulk.seconds >= cleanSeconds:
		return verdict{Clean, "no loss in 10 s of bulk"}
	case n < minLosses:
		return verdict{Unknown, fmt.Sprintf("%d losses seen, too few to judge by", n)}
	case p.varies():
		return verdict{Variable, "losses come from the queue of a link that is fast and slow by turns"}
	case float64(n-queued) >= noQueueShare*float64(n) && !p.filled(queued):
		return verdict{Random, fmt.Sprintf("%d of the last %d losses came without a queue", n-queued, n)}
	case queueUs < shallowShare*float64(p.rttMinUs):
		return verdict{Shallow, fmt.Sprintf("losses come from a queue of %.0f ms at %.0f ms RTT", queueUs/1e3, float64(p.rttMinUs)/1e3)}
	}
	return verdict{Congestive, fmt.Sprintf("%d of the last %d losses came from a full queue", queued, n)}
}

// queued counts the losses, those among them that came from a queue, and gives the longest of these in us. Losses from before a
// path became longer are of another path, and do not count.
func (p *path) queued() (n, queued int, longestUs float64) {
	floor := p.floorUs()
	for _, l := range p.losses {
		if l.SRTTUs >= floor {
			n++
		}
	}
	for _, q := range p.queues() {
		queued++
		longestUs = max(longestUs, q.us)
	}
	return n, queued, longestUs
}

// queue is one that a loss came from.
type queue struct {
	us   float64 // its length
	rate float64 // of the flow, in packets per us
}

// queues are those that losses came from, the latest last.
func (p *path) queues() []queue {
	fastest := map[uint64]uint64{}
	for _, l := range p.losses {
		fastest[l.Cookie] = max(fastest[l.Cookie], l.DeliveredBps)
	}
	floor, linkBps := p.floorUs(), float64(p.rate())
	var list []queue
	for _, l := range p.losses {
		if l.SRTTUs < floor {
			continue
		}
		base := max(float64(p.baseUs(l)), float64(floor))
		us := float64(l.SRTTUs) - base
		mss := float64(p.flows[l.Cookie].MSSBytes)
		sentBps := float64(l.CwndPackets) * mss / float64(l.SRTTUs) * 1e6
		busy := max(float64(l.DeliveredBps), sentBps) >= busyShare*float64(fastest[l.Cookie])
		if us > queueFloor && us > queueShare*base && us*1e-6*linkBps > queuePackets*mss && (busy || us > deepShare*base) {
			list = append(list, queue{us, float64(l.CwndPackets) / float64(l.SRTTUs)})
		}
	}
	return list
}

// filledShare is how much of the highest rate must arrive for a path to count as full: what an algorithm leaves that ignores
// losses.
const filledShare = 0.93

// filled says whether the path carries what it can. What it can is only known if a queue was seen.
func (p *path) filled(queued int) bool {
	s := p.span(3, p.since)
	return queued > 0 && s.seconds > 0 && s.goodputBps >= filledShare*float64(p.rate())
}

// rate is the highest delivered rate lately, in bytes per second.
func (p *path) rate() uint64 {
	var most uint64
	for i := range p.seconds {
		most = max(most, p.seconds[i].rateBps)
	}
	return most
}

// classifyUnderNoise judges an algorithm that keeps a queue of its own and takes no loss for congestion, so that queue and
// losses mean nothing: only how many there are does.
func (p *path) classifyUnderNoise() verdict {
	s := p.span(3*noiseSeconds, p.since)
	loss := s.lossRate()
	switch {
	case s.seconds < noiseSeconds:
		return verdict{p.class, p.why}
	case s.seconds >= 2*noiseSeconds && loss < quietLoss:
		return verdict{Unknown, fmt.Sprintf("hardly any losses any more (%.2g)", loss)}
	case loss > floodLoss && loss > floodFactor*p.lossAtChoice:
		return verdict{Unknown, fmt.Sprintf("losses rose from %.2g to %.2g", p.lossAtChoice, loss)}
	}
	return verdict{Random, p.why}
}
