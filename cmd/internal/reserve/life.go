// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/trunkline/trunkline/loader/policy"
)

// Transition is a reservation that came into another state, or whose tuning values changed.
type Transition struct {
	Reservation
	From State
	Old  *Tuning
}

// Tick has reservations begin, end, be suspended and come back as time and path say, and returns those that did. The error is
// that this could not be written down; it is tried again with the next tick.
func (b *Book) Tick() ([]Transition, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changed []Transition
	for _, r := range b.all {
		from, old := r.State, r.Tuning
		if b.settle(r) {
			changed = append(changed, Transition{r.clone(), from, old})
		}
	}
	slices.SortFunc(changed, func(x, y Transition) int { return cmp.Compare(x.ID, y.ID) })
	if len(changed) == 0 && !b.stale {
		return nil, nil
	}
	return changed, b.save()
}

// settle brings a reservation to the state that it should have now, and says whether that is another one.
func (b *Book) settle(r *Reservation) bool {
	if r.State == Ended {
		return false
	}
	now := r.Anchor.now(b.clock)
	state, reason := Pending, ""
	var t *Tuning
	switch {
	case !now.Before(r.End):
		tuning := r.Tuning // the last in force stays to be seen
		r.finish(b.clock.Wall(), "")
		r.Tuning = tuning
		return true
	case !now.Before(r.Start):
		state = Active
		if t, reason = r.tune(b.clock.Wall()); t == nil {
			state = Suspended
		}
	}
	same := r.State == state && r.Reason == reason && equal(r.Tuning, t)
	if t != nil && r.Tuning != nil && equal(r.Tuning, t) {
		t.Since = r.Tuning.Since
	}
	if r.State != state {
		r.Since = b.clock.Wall()
	}
	r.State, r.Reason, r.Tuning = state, reason, t
	return !same
}

// equal leaves out since when.
func equal(a, b *Tuning) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.RateBps == b.RateBps && a.RTTus == b.RTTus && slices.Equal(a.Prefixes, b.Prefixes)
}

// Grant is what the kernel is to hold, until a boot time.
type Grant struct {
	policy.Reserved               // without Until
	EndBoot         time.Duration // that no jump of the wall's clock moves
}

// InForce is what the kernel is to hold now. It finds a flow's reservation by the flow's prefix, so reservations that have a
// prefix in common are one there: with the sum of their rates, and the longest of their round-trip times.
func (b *Book) InForce() []Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	var groups []Grant
	for _, r := range b.living("") {
		if r.State != Active || r.Tuning == nil {
			continue
		}
		one := Grant{policy.Reserved{ID: r.ID, RateBps: r.Tuning.RateBps, RTT: time.Duration(r.Tuning.RTTus) * time.Microsecond},
			b.clock.Boot() + r.End.Sub(r.Anchor.now(b.clock))}
		for _, e := range r.EndPoints {
			if e.usable() {
				one.Remote = append(one.Remote, e.Remote)
			}
		}
		groups = merged(groups, one)
	}
	for _, g := range groups {
		slices.SortFunc(g.Remote, comparePrefixes)
	}
	return groups
}

// merged adds one to groups, together with those that it has a prefix in common with.
func merged(groups []Grant, one Grant) []Grant {
	kept := groups[:0:0]
	ids := []string{}
	for _, g := range groups {
		if !slices.ContainsFunc(g.Remote, func(p netip.Prefix) bool { return slices.Contains(one.Remote, p) }) {
			kept = append(kept, g)
			continue
		}
		ids = append(ids, g.ID)
		one.RateBps += g.RateBps
		one.RTT = max(one.RTT, g.RTT)
		one.EndBoot = min(one.EndBoot, g.EndBoot)
		for _, p := range g.Remote {
			if !slices.Contains(one.Remote, p) {
				one.Remote = append(one.Remote, p)
			}
		}
	}
	one.ID = strings.Join(append(ids, one.ID), "+")
	return append(kept, one)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// update lets f change an end point of a reservation that has not ended; what it changes is written down with the next tick,
// if f says that it matters.
func (b *Book) update(id string, remote netip.Prefix, f func(*EndPoint) (matters bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.all[id]
	if r == nil || r.State == Ended {
		return
	}
	if i := slices.IndexFunc(r.EndPoints, func(e EndPoint) bool { return e.Remote == remote }); i >= 0 && f(&r.EndPoints[i]) {
		b.stale = true
		b.woken()
	}
}
