// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// peak is the highest sum of rates of reservations at any one time within [start, end), when it is first reached, and whose
// they are.
func peak(all []Reservation, start, end time.Time) (most uint64, at time.Time, whose []string) {
	points := []time.Time{start}
	for _, r := range all {
		if r.Start.After(start) && r.Start.Before(end) {
			points = append(points, r.Start)
		}
	}
	slices.SortFunc(points, time.Time.Compare)
	at = start
	for _, p := range points {
		var sum uint64
		var ids []string
		for _, r := range all {
			if !p.Before(r.Start) && p.Before(r.End) {
				sum += r.RateBps
				ids = append(ids, r.ID)
			}
		}
		if sum > most {
			most, at, whose = sum, p, ids
		}
	}
	return most, at, whose
}

// on says whether a reservation uses a declared path.
func (p Path) on(r Reservation) bool { return r.overlaps(p.Remote) }

// covers says whether every end point of a reservation is within declared paths.
func (p Policy) covers(r Reservation) bool {
	for _, e := range r.EndPoints {
		within := slices.ContainsFunc(p.Paths, func(q Path) bool {
			return slices.ContainsFunc(q.Remote, func(x netip.Prefix) bool { return x.Bits() <= e.Remote.Bits() && x.Contains(e.Remote.Addr()) })
		})
		if !within {
			return false
		}
	}
	return true
}

// room refuses a reservation that a path has no room for beside the others. Of a path whose capacity nobody has declared it is
// not known that there is room for two.
func (p Policy) room(r Reservation, others []Reservation) error {
	for _, q := range p.Paths {
		if !q.on(r) {
			continue
		}
		beside := slices.DeleteFunc(slices.Clone(others), func(o Reservation) bool { return !q.on(o) })
		most, at, whose := peak(beside, r.Start, r.End)
		switch {
		case r.RateBps > q.CapacityBps:
			return refuse(Overlapping, "path %s carries %s, which is less than %s; ask for less", q.Name, rate(q.CapacityBps), rate(r.RateBps))
		case most+r.RateBps > q.CapacityBps:
			return refuse(Overlapping, "path %s carries %s, of which %s is reserved at %s (%s); ask for %s", q.Name, rate(q.CapacityBps), rate(most),
				at.Format(time.RFC3339), strings.Join(whose, ", "), lessOrLater(q.CapacityBps, most))
		}
	}
	if p.covers(r) {
		return nil
	}
	for _, o := range others {
		if o.meets(r.Start, r.End) && o.overlaps(r.prefixes()) && !p.covers(o) {
			return refuse(Overlapping, "it overlaps reservation %s of %s, %s, from %s to %s, and no declared path says that there is room for both; choose another time, or declare the capacity under `reservations: paths`",
				o.ID, o.Owner, rate(o.RateBps), o.Start.Format(time.RFC3339), o.End.Format(time.RFC3339))
		}
	}
	return nil
}
