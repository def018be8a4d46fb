// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"slices"
	"time"
)

// The bounds of changing.
const (
	defaultHold = 10 * time.Second
	maxHold     = 10 * time.Minute
	// calm is how many changes of the last ten minutes are not yet flapping; each one more doubles the hold.
	calm       = 2
	flapWindow = 10 * time.Minute
	// maxChanges an hour, whatever happens.
	maxChanges = 20
	// exploreEvery is how often another candidate gets a hold's time, if that is switched on.
	exploreEvery = 10 * time.Minute
)

// decide says what the path's choice becomes; ok is false if it stays.
func (c *Chooser) decide(p *path, now time.Time) (name, why string, ok bool) {
	v := p.classify()
	name, why = p.best(now, c.o.Candidates, v.class)
	if v.class == Unknown && !ignoresLoss(p.chosen) {
		name = p.chosen // nothing speaks for another
	}
	if why == "" {
		why = v.why
	} else {
		why = v.why + ", and " + why
	}
	// A class that is seen once may be an accident, unless there was none before: a first answer is wanted soon.
	settled := v.class == p.class || p.class == Unknown || p.pending == v.class
	p.pending = v.class
	if !settled {
		return "", "", false
	}
	if v.class != Unknown || ignoresLoss(p.chosen) {
		p.class = v.class
	}
	if name == p.chosen {
		if v.class != Unknown {
			p.why = why
		}
		return c.explore(p, now)
	}
	if !c.mayChange(p, now) {
		return "", "", false
	}
	return name, why, true
}

// mayChange holds a path's choice for a while after a change, and the longer the more it flaps.
func (c *Chooser) mayChange(p *path, now time.Time) bool {
	p.changes = slices.DeleteFunc(p.changes, func(t time.Time) bool { return now.Sub(t) > time.Hour })
	if len(p.changes) >= maxChanges {
		return false
	}
	if len(p.changes) == 0 {
		return true
	}
	recent := 0
	for _, t := range p.changes {
		if now.Sub(t) < flapWindow {
			recent++
		}
	}
	hold := c.o.Hold
	for range max(recent-calm, 0) {
		hold = min(2*hold, maxHold)
	}
	return now.Sub(p.changes[len(p.changes)-1]) >= hold
}

// explore gives another candidate a try where that is switched on, and the path's class is known.
func (c *Chooser) explore(p *path, now time.Time) (name, why string, ok bool) {
	if !c.o.Explore || p.class == Unknown || now.Sub(p.explored) < exploreEvery || !c.mayChange(p, now) {
		return "", "", false
	}
	p.explored = now
	for _, name := range ranked(c.o.Candidates, p.class) {
		if _, known := p.lesson(now, p.class, name); !known && name != p.chosen {
			return name, "explored", true
		}
	}
	return "", "", false
}
