// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"time"
)

// What a path looks like that has become longer: no round trip of the last seconds came near the least that its flows know of,
// they hardly differ, as they would if a queue filled and was drained, the link is not busy, as a queue would keep it, and
// losses are not more than noise. Flows that share a link look like that for a while too, each with its part of the rate: so it takes
// longer where the queue is known to hold as much.
const (
	longerRTT     = 1.2 // of the least known
	longerShare   = 0.8 // of the highest rate lately, at most
	longerLoss    = 0.02
	longerSeen    = 1.05 // of the longest round trip lately
	longerSeconds = 3
	longerAlike   = 1.1
	// Where round trips were as long before.
	surelySeconds = 6
	surelyAlike   = 1.05
)

// renewEvery bounds beginning anew: twice as long after each time within flapWindow, up to maxHold.
const renewEvery = 30 * time.Second

// longer says whether the path is, at some time, longer than the least round trip that a flow knows of, and gives the least of the
// last seconds.
func (p *path) longer(at time.Time, knownUs uint32) (leastUs uint32, is bool) {
	known := float64(max(knownUs, p.renewedUs))
	looks := func(seconds int, alike float64) (span, bool) {
		s := p.span(seconds, at.Add(-time.Duration(seconds+1)*time.Second))
		least := float64(s.srttMinUs)
		return s, s.seconds == seconds && least > longerRTT*known && float64(s.srttMaxUs) < alike*least &&
			s.goodputBps < longerShare*float64(p.rate()) && s.lossRate() < longerLoss
	}
	s, is := looks(longerSeconds, longerAlike)
	if is && float64(s.srttMinUs) < longerSeen*float64(p.longestUs(s.from)) {
		_, is = looks(surelySeconds, surelyAlike)
	}
	return s.srttMinUs, is
}

// longestUs is the longest round trip that was seen before a time, lately.
func (p *path) longestUs(before time.Time) (us uint32) {
	for i := range p.seconds {
		if s := &p.seconds[i]; !s.at.After(before) {
			us = max(us, s.srttMaxUs)
		}
	}
	for i := range p.losses {
		if l := &p.losses[i]; l.At.Before(before) {
			us = max(us, l.SRTTUs)
		}
	}
	return us
}

// floorUs is the round trip of a path that has become longer; 0: it has not.
func (p *path) floorUs() uint32 {
	if len(p.losses) == 0 {
		return 0
	}
	l := p.losses[len(p.losses)-1]
	leastUs, longer := p.longer(l.At, l.RTTMinUs)
	if !longer {
		return 0
	}
	return leastUs
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
	known := max(l.RTTMinUs, p.renewedUs)
	if l.RTTMinUs > 0 && known < base {
		if _, longer := p.longer(l.At, known); !longer {
			base = known
		}
	}
	return base
}

// renew has flows begin anew on a path that has become longer than they believe: an algorithm that measures the queue against
// the least round trip ever seen would yield for ever to a queue that is none, and any would take long to what the path holds
// now. That is no change of mind, and so neither held up nor counted as one. What ignores losses looks for the length itself.
func (p *path) renew(now time.Time) (ch Change, ok bool) {
	hold := renewEvery
	if now.Sub(p.renewed) < flapWindow {
		hold = p.renewHold
	}
	if ignoresLoss(p.chosen) || now.Sub(p.renewed) < hold || now.Sub(p.since) < baseAge {
		return ch, false
	}
	knownUs := p.seconds[len(p.seconds)-1].rttMinUs
	leastUs, longer := p.longer(now, knownUs)
	if knownUs == 0 || !longer {
		return ch, false
	}
	p.why = fmt.Sprintf("the path became longer, from %d to %d ms: %s begins anew", max(knownUs, p.renewedUs)/1000, leastUs/1000, p.chosen)
	p.renewed, p.renewHold, p.renewedUs = now, min(2*hold, maxHold), leastUs
	p.renewals++
	p.losses = p.losses[:0] // of the path before
	return Change{Path: p.id, Old: p.chosen, New: p.chosen, Why: p.why, At: now}, true
}

// stale says whether live flows know of a round trip that the path does not have any more. The kernel remembers it for minutes
// and hands it to whatever algorithm begins: BBR would hold a window for that round trip until it looks for another, ten
// seconds later, and then be slow to come back.
func (p *path) stale() bool {
	if len(p.seconds) == 0 {
		return false
	}
	knownUs := p.seconds[len(p.seconds)-1].rttMinUs
	return knownUs > 0 && float64(p.renewedUs) > longerRTT*float64(knownUs)
}
