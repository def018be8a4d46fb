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
	// path, the second is above what timers and neighbours do to a short round trip.
	queueShare = 0.05
	queueFloor = 1000 // us
	// Up to deepShare a round trip may also be late because a host or a radio link was. A queue keeps the link busy: a loss that it
	// causes finds the flow at busyShare of the highest rate that it had at a loss, at least.
	deepShare = 0.5
	busyShare = 0.6
	// noQueueShare of the losses must come without a queue before they count as noise: a queue's own losses are seen without
	// one now and then, since a flow that halved its window emptied it before the loss of a neighbour is repaired.
	noQueueShare = 0.25
	// shallowShare is the length of a queue in round trips below which it is short.
	shallowShare = 0.3
	// cleanSeconds in bulk without a loss event are a clean path.
	cleanSeconds = 10
	// baseAge is how far back the least RTT is looked for: a path that has become longer is forgotten as long as that.
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
	fastest := map[uint64]uint64{}
	for _, l := range p.losses {
		fastest[l.Cookie] = max(fastest[l.Cookie], l.DeliveredBps)
	}
	floor := p.floorUs()
	for _, l := range p.losses {
		if l.SRTTUs < floor {
			continue
		}
		n++
		base := max(float64(p.baseUs(l)), float64(floor))
		queue := float64(l.SRTTUs) - base
		busy := float64(l.DeliveredBps) >= busyShare*float64(fastest[l.Cookie])
		if queue > queueFloor && queue > queueShare*base && (busy || queue > deepShare*base) {
			queued++
			longestUs = max(longestUs, queue)
		}
	}
	return n, queued, longestUs
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

// baseUs is the round trip without a queue at the time of a loss.
func (p *path) baseUs(l Loss) uint32 {
	base := l.SRTTUs
	for i := len(p.losses) - 1; i >= 0; i-- {
		if o := &p.losses[i]; l.At.Sub(o.At) < baseAge && o.SRTTUs > 0 {
			base = min(base, o.SRTTUs)
		}
	}
	for i := range p.seconds {
		if s := &p.seconds[i]; l.At.Sub(s.at) < baseAge && s.srttMinUs > 0 {
			base = min(base, s.srttMinUs)
		}
	}
	// What a flow saw while there was no bulk yet is the best of all, unless the path has become longer since.
	if l.RTTMinUs > 0 && l.RTTMinUs < base {
		if _, longer := p.longer(l); !longer {
			base = l.RTTMinUs
		}
	}
	return base
}

// floorUs is the round trip of a path that has become longer; 0: it has not.
func (p *path) floorUs() uint32 {
	if len(p.losses) == 0 {
		return 0
	}
	leastUs, longer := p.longer(p.losses[len(p.losses)-1])
	if !longer {
		return 0
	}
	return leastUs
}

// longerShare is how much of the highest rate lately must be missing before a path can have become longer: a queue that
// stands for seconds keeps the link busy.
const longerShare = 0.8

// longer says whether the path is longer than a flow's least RTT says: no round trip of the last seconds came near it, they
// hardly differ among each other, as they would if a queue filled and was drained, and the link is not busy.
// It gives the least of them in us, too.
func (p *path) longer(l Loss) (leastUs uint32, is bool) {
	s := p.span(int(baseAge/time.Second), l.At.Add(-baseAge))
	return s.srttMinUs, s.seconds >= 3 && float64(s.srttMinUs) > 1.2*float64(l.RTTMinUs) &&
		float64(s.srttMaxUs) < 1.1*float64(s.srttMinUs) && s.goodputBps < longerShare*float64(p.rate())
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
