// SPDX-License-Identifier: Apache-2.0

// Package picture draws paths and their reservations over time: as text for a terminal, and as SVG.
package picture

import (
	"net/netip"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

// Picture is what is drawn.
type Picture struct {
	Now, From, To time.Time
	Paths         []Path
	Zone          *time.Location // that times are written in
}

// Path is one path with the reservations on it. Without a capacity nobody has declared it.
type Path struct {
	Name        string
	CapacityBps uint64 // bytes per second; 0: not declared
	On          []reserve.Reservation
}

// The default span: what has not ended, at least a day, at most a month.
const (
	leastSpan = 24 * time.Hour
	mostSpan  = 31 * 24 * time.Hour
)

// New arranges reservations by declared path; those on none stand by their first end point. A zero from or to is chosen so that
// what has not ended is seen.
func New(now, from, to time.Time, all []reserve.Reservation, paths []Declared) Picture {
	p := Picture{Now: now, From: from, To: to, Zone: time.Local}
	if p.From.IsZero() {
		p.From = now
		for _, r := range all {
			if r.State != reserve.Ended && r.Start.Before(p.From) {
				p.From = r.Start
			}
		}
		if p.From.Before(now.Add(-leastSpan)) {
			p.From = now.Add(-leastSpan)
		}
		p.From = p.From.Truncate(time.Hour)
	}
	if p.To.IsZero() {
		p.To = p.From.Add(leastSpan)
		for _, r := range all {
			if r.State != reserve.Ended && r.End.After(p.To) {
				p.To = r.End.Add(time.Hour - 1).Truncate(time.Hour)
			}
		}
		if p.To.After(p.From.Add(mostSpan)) {
			p.To = p.From.Add(mostSpan)
		}
	}
	p.arrange(all, paths)
	return p
}

// Declared is a path of the configuration.
type Declared struct {
	Name        string
	Remote      []netip.Prefix
	CapacityBps uint64
}

func (p *Picture) arrange(all []reserve.Reservation, paths []Declared) {
	placed := map[string]bool{}
	for _, d := range paths {
		path := Path{Name: d.Name, CapacityBps: d.CapacityBps}
		for _, r := range all {
			on := slices.ContainsFunc(r.EndPoints, func(e reserve.EndPoint) bool { return slices.ContainsFunc(d.Remote, e.Remote.Overlaps) })
			placed[r.ID] = placed[r.ID] || on
			if on && p.shows(r) {
				path.On = append(path.On, r)
			}
		}
		p.Paths = append(p.Paths, path)
	}
	for _, r := range all {
		if placed[r.ID] || !p.shows(r) {
			continue
		}
		name := r.EndPoints[0].Remote.String()
		i := slices.IndexFunc(p.Paths, func(q Path) bool { return q.CapacityBps == 0 && q.Name == name })
		if i < 0 {
			p.Paths = append(p.Paths, Path{Name: name})
			i = len(p.Paths) - 1
		}
		p.Paths[i].On = append(p.Paths[i].On, r)
	}
}

func (p Picture) shows(r reserve.Reservation) bool {
	return r.Start.Before(p.To) && until(r).After(p.From)
}

// until is when a reservation's path is free again.
func until(r reserve.Reservation) time.Time {
	if r.State == reserve.Ended && r.EndedAt.Before(r.End) {
		return r.EndedAt
	}
	return r.End
}

// scale is the rate that a path's drawing reaches up to.
func (p Path) scale() uint64 {
	if p.CapacityBps > 0 {
		return p.CapacityBps
	}
	most := uint64(1)
	for _, r := range p.On {
		sum := uint64(0)
		for _, o := range p.On {
			if !r.Start.Before(o.Start) && r.Start.Before(until(o)) {
				sum += o.RateBps
			}
		}
		most = max(most, sum)
	}
	return most
}

// reservedIn is the highest rate reserved at any one time within a span.
func (p Path) reservedIn(from, to time.Time) uint64 {
	points := []time.Time{from}
	for _, r := range p.On {
		if r.Start.After(from) && r.Start.Before(to) {
			points = append(points, r.Start)
		}
	}
	var most uint64
	for _, at := range points {
		var sum uint64
		for _, r := range p.On {
			if !at.Before(r.Start) && at.Before(until(r)) {
				sum += r.RateBps
			}
		}
		most = max(most, sum)
	}
	return most
}

// stacked places each reservation above those that it meets in time: bytes per second from the bottom, in the order of p.On.
func (p Path) stacked() []uint64 {
	offsets := make([]uint64, len(p.On))
	for i, r := range p.On {
		for moved := true; moved; {
			moved = false
			for j, o := range p.On[:i] {
				meets := r.Start.Before(until(o)) && o.Start.Before(until(r))
				if meets && offsets[i] < offsets[j]+o.RateBps && offsets[j] < offsets[i]+r.RateBps {
					offsets[i], moved = offsets[j]+o.RateBps, true
				}
			}
		}
	}
	return offsets
}
