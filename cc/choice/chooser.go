// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// maxPaths bounds the memory: beyond, the paths that were used least lately are forgotten.
const maxPaths = 10_000

// Options say what may be chosen, and how readily.
type Options struct {
	Candidates []string      // names that can be had now; what CheckCandidate refuses must not be among them
	Explore    bool          // try candidates out now and then, of which nothing is known on a path
	Hold       time.Duration // between two changes of a path, at least; 0 is 10 s
}

// Chooser has the choices of all paths. Its methods may be called by several goroutines.
type Chooser struct {
	mu    sync.Mutex
	o     Options
	paths map[Path]*path
}

// New returns a chooser that knows of no path yet.
func New(o Options) *Chooser {
	c := &Chooser{paths: map[Path]*path{}}
	c.Configure(o)
	return c
}

// Configure changes what may be chosen. Choices that may not be made any more are replaced at the next tick.
func (c *Chooser) Configure(o Options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.Candidates = slices.Clone(o.Candidates)
	if o.Hold <= 0 {
		o.Hold = defaultHold
	}
	c.o = o
}

// Prior returns what a path gets of which nothing is known; "": there are no candidates.
func (c *Chooser) Prior() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prior()
}

func (c *Chooser) prior() string {
	if list := ranked(c.o.Candidates, Unknown); len(list) > 0 {
		return list[0]
	}
	return ""
}

// Lost takes note of a loss event.
func (c *Chooser) Lost(l Loss) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.paths[l.Path]; p != nil {
		p.lost(l)
		return
	}
	if len(c.o.Candidates) > 0 {
		c.add(l.Path, l.At).lost(l)
	}
}

// Tick takes note of what the flows of all paths did since the tick before, about a second ago, and returns what changes.
func (c *Chooser) Tick(now time.Time, flows []Flow) []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.o.Candidates) == 0 {
		return nil
	}
	byPath := map[Path][]Flow{}
	for _, f := range flows {
		byPath[f.Path] = append(byPath[f.Path], f)
	}
	var changes []Change
	for id, flows := range byPath {
		p := c.paths[id]
		if p == nil {
			p = c.add(id, now)
		}
		p.observe(now, flows)
		p.learn(now)
		if name, why, ok := c.replace(p, now); ok {
			changes = append(changes, p.note(p.change(now, name, why)))
		} else if ch, ok := p.renew(now); ok {
			changes = append(changes, p.note(ch))
		}
	}
	c.forget()
	slices.SortFunc(changes, func(a, b Change) int { return comparePaths(a.Path, b.Path) })
	return changes
}

// replace decides for a path whose choice is a candidate still, and takes the prior for one whose is not.
func (c *Chooser) replace(p *path, now time.Time) (name, why string, ok bool) {
	if !slices.Contains(c.o.Candidates, p.chosen) {
		name, _ = p.best(now, c.o.Candidates, p.class)
		return name, "what was chosen is no candidate any more", true
	}
	return c.decide(p, now)
}

func (c *Chooser) add(id Path, now time.Time) *path {
	p := &path{
		id: id, flows: map[uint64]seenFlow{}, learned: map[lesson]result{}, chosen: c.prior(), why: "nothing is known of the path yet",
		class: Unknown, since: now, updated: now, explored: now,
	}
	c.paths[id] = p
	return p
}

// change makes another choice. What was seen under the one before says little of the new one.
func (p *path) change(now time.Time, name, why string) Change {
	ch := Change{Path: p.id, Old: p.chosen, New: name, Why: why, At: now}
	s := p.span(noiseSeconds, p.since)
	p.lossAtChoice = s.lossRate()
	p.changes = append(p.changes, now)
	p.remember(now)
	p.previous, p.chosen, p.why, p.since = p.chosen, name, why, now
	p.losses = p.losses[:0]
	p.pending = ""
	return ch
}

// forget drops the paths that were used least lately, an eighth at a time.
func (c *Chooser) forget() {
	if len(c.paths) <= maxPaths {
		return
	}
	all := make([]*path, 0, len(c.paths))
	for _, p := range c.paths {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *path) int { return a.updated.Compare(b.updated) })
	for _, p := range all[:len(all)-maxPaths*7/8] {
		delete(c.paths, p.id)
	}
}

// Chosen returns how many paths have each algorithm.
func (c *Chooser) Chosen() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for _, p := range c.paths {
		n[p.chosen]++
	}
	return n
}

// Decisions returns the choices of all paths, ordered by prefix and peer.
func (c *Chooser) Decisions() []Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Decision, 0, len(c.paths))
	for _, p := range c.paths {
		out = append(out, p.decision())
	}
	slices.SortFunc(out, func(a, b Decision) int { return comparePaths(a.Path, b.Path) })
	return out
}

func (p *path) decision() Decision {
	s := p.span(maxSeconds, time.Time{})
	return Decision{
		Path: p.id, Chosen: p.chosen, Previous: p.previous, Why: p.why, Since: p.since, Updated: p.updated, Class: p.class,
		RTTMinUs: p.rttMinUs, RateBps: p.rate(), LossRate: s.lossRate(), Changes: len(p.changes), Renewals: p.renewals,
		History: slices.Clone(p.history),
	}
}

func comparePaths(a, b Path) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), cmp.Compare(a.Peer, b.Peer))
}
