// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"slices"
	"time"
)

// lesson is what a result belongs to: an algorithm, in a class of path.
type lesson struct {
	class     Class
	algorithm string // family
}

// result is what an algorithm achieved: moving averages, weight 1/8 for the new second.
type result struct {
	goodputBps float64
	lossRate   float64
	seconds    int // seen, at most 1000
	at         time.Time
}

// What is learned counts from so many seconds on, and until it is this old.
const (
	lessonSeconds = 5
	lessonAge     = 24 * time.Hour
)

// betterBy is how much more another algorithm must have achieved before it is preferred.
const betterBy = 1.10

// learn adds the latest second to what the chosen algorithm achieved in the class that the path is of.
func (p *path) learn(now time.Time) {
	s := &p.seconds[len(p.seconds)-1]
	settled := now.Sub(p.since) > 2*time.Second // the flows of a change begin anew
	if !s.bulk || !s.chosen || !settled || p.class == Unknown {
		return
	}
	k := lesson{p.class, family(p.chosen)}
	r := p.learned[k]
	loss := 0.0
	if s.segments > 0 {
		loss = float64(s.retransmits) / float64(s.segments)
	}
	if r.seconds == 0 {
		r.goodputBps, r.lossRate = s.goodputBps(), loss
	}
	r.goodputBps += (s.goodputBps() - r.goodputBps) / 8
	r.lossRate += (loss - r.lossRate) / 8
	r.seconds, r.at = min(r.seconds+1, 1000), now
	p.learned[k] = r
}

// remember keeps what the chosen algorithm achieved just before it is replaced, so that the next one has something to be measured
// by. What it achieved long before may have been on another path.
func (p *path) remember(now time.Time) {
	s := p.span(3, p.since)
	if s.seconds == 0 || p.class == Unknown {
		return
	}
	k := lesson{p.class, family(p.chosen)}
	if r := p.learned[k]; r.seconds < lessonSeconds {
		p.learned[k] = result{s.goodputBps, s.lossRate(), lessonSeconds, now}
	}
}

// best is the best candidate for a class: the first of the ranking, unless the path itself has taught better.
func (p *path) best(now time.Time, candidates []string, class Class) (name, why string) {
	list := ranked(candidates, class)
	if !ignoresLoss(p.chosen) && p.stale() && slices.ContainsFunc(list, func(name string) bool { return !ignoresLoss(name) }) {
		list = slices.DeleteFunc(list, ignoresLoss)
	}
	if len(list) == 0 {
		return "", ""
	}
	name = list[0]
	if class == Variable {
		return name, "" // what was achieved says what the link was like, and not the algorithm
	}
	first, known := p.lesson(now, class, name)
	if !known {
		return name, ""
	}
	for _, other := range list[1:] {
		if r, ok := p.lesson(now, class, other); ok && r.goodputBps > betterBy*first.goodputBps {
			name, first = other, r
			why = "it achieved more here"
		}
	}
	return name, why
}

func (p *path) lesson(now time.Time, class Class, name string) (result, bool) {
	r, ok := p.learned[lesson{class, family(name)}]
	return r, ok && r.seconds >= lessonSeconds && now.Sub(r.at) < lessonAge
}
