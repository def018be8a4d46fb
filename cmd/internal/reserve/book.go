// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Store keeps records over a restart; what it returns without an error is kept.
type Store interface {
	Save(records map[string][]byte) error
}

// Book is the service layer: it grants and refuses, and remembers. It is safe for concurrent use.
type Book struct {
	clock Clock
	store Store

	mu     sync.Mutex // guards what follows
	policy Policy
	all    map[string]*Reservation
	next   uint64        // number of the next reservation without a name
	stale  bool          // the store lacks something
	kept   time.Duration // boot time of the latest writing
	change chan struct{}
}

// NewBook takes up what the store had, as it was before a restart; records that make no sense are left out and named in the error,
// and the book is there all the same.
func NewBook(c Clock, s Store, p Policy, records map[string][]byte) (*Book, error) {
	b := &Book{clock: c, store: s, policy: p, all: map[string]*Reservation{}, next: 1, change: make(chan struct{}, 1)}
	var bad []string
	for id, data := range records {
		r := new(Reservation)
		if err := json.Unmarshal(data, r); err != nil || r.ID != id || !r.End.After(r.Start) || len(r.EndPoints) == 0 {
			bad = append(bad, id)
			continue
		}
		if r.Anchor.BootID != c.BootID() {
			r.Anchor = anchorAt(c)
		}
		b.all[id] = r
		if n, err := strconv.ParseUint(strings.TrimPrefix(id, "r"), 10, 32); err == nil && n >= b.next {
			b.next = n + 1
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return b, fmt.Errorf("%d records make no sense and are left out: %s", len(bad), strings.Join(bad, ", "))
	}
	return b, nil
}

// Configure takes another policy. What is granted stays granted.
func (b *Book) Configure(p Policy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.policy = p
	b.woken()
}

// Policy is the one in force.
func (b *Book) Policy() Policy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.policy
}

// Woken tells that something has changed.
func (b *Book) Woken() <-chan struct{} { return b.change }

func (b *Book) woken() {
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// Add makes a reservation, or says why not by a Refusal. What it returns is kept over a restart.
func (b *Book) Add(q Request, by Caller) (Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(q, by, "")
}

func (b *Book) add(q Request, by Caller, order string) (Reservation, error) {
	now := b.clock.Wall()
	t, err := q.read(b.reading(now), nil)
	if err != nil {
		return Reservation{}, err
	}
	owner, err := b.policy.owner(by, q.Owner)
	if err != nil {
		return Reservation{}, err
	}
	r := Reservation{ID: q.ID, Owner: owner, RateBps: t.RateBps, Share: t.Share, Start: t.Start, End: t.End, EndPoints: t.EndPoints,
		System: by.System, Order: order, MadeBy: by.Name, Made: now, State: Pending, Since: now, Anchor: anchorAt(b.clock)}
	if old := b.all[r.ID]; old != nil && old.State != Ended {
		return Reservation{}, refuse(Malformed, "there is a reservation %s already; choose another id, or change that one", r.ID)
	}
	if len(b.living("")) >= MaxReservations {
		return Reservation{}, refuse(Full, "there are %d reservations, the most; end some", MaxReservations)
	}
	if err := b.admit(r); err != nil {
		return Reservation{}, err
	}
	if r.ID == "" {
		r.ID = b.number()
	}
	return b.put(r)
}

// Change changes what the request names of a reservation, as a whole or not at all.
func (b *Book) Change(id string, q Request, by Caller) (Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.living1(id, "change", by)
	if err != nil {
		return Reservation{}, err
	}
	t, err := q.read(b.reading(b.clock.Wall()), &terms{r.RateBps, r.Share, r.Start, r.End, r.EndPoints})
	if err != nil {
		return Reservation{}, err
	}
	if q.ID != "" && q.ID != id {
		return Reservation{}, refuse(Malformed, "the id of a reservation does not change; make another one")
	}
	if q.Owner != "" && q.Owner != r.Owner {
		if r.Owner, err = b.policy.owner(by, q.Owner); err != nil {
			return Reservation{}, err
		}
	}
	r.RateBps, r.Share, r.Start, r.End, r.EndPoints = t.RateBps, t.Share, t.Start, t.End, t.EndPoints
	r.Changed, r.Anchor = b.clock.Wall(), anchorAt(b.clock)
	if err := b.admit(r); err != nil {
		return Reservation{}, err
	}
	return b.put(r)
}

// End ends a reservation at once.
func (b *Book) End(id string, by Caller) (Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, err := b.living1(id, "end", by)
	if err != nil {
		return Reservation{}, err
	}
	r.finish(b.clock.Wall(), by.Name)
	return b.put(r)
}

func (r *Reservation) finish(at time.Time, by string) {
	r.State, r.Reason, r.Since, r.EndedAt, r.EndedBy = Ended, "", at, at, by
}

// Get returns a reservation, also one that has ended and is remembered.
func (b *Book) Get(id string) (Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.all[id]
	if r == nil {
		return Reservation{}, b.unknown(id)
	}
	return r.clone(), nil
}

// List returns all reservations, those that ended too, in the order of their starts.
func (b *Book) List() []Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Reservation, 0, len(b.all))
	for _, r := range b.all {
		c := r.clone()
		c.Use.PerFlow = nil
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y Reservation) int { return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(x.ID, y.ID)) })
	return all
}

func (b *Book) reading(now time.Time) reading { return reading{now, time.Local, b.policy.ProbePort} }

// number names a reservation that has no name.
func (b *Book) number() string {
	for ; ; b.next++ {
		if id := "r" + strconv.FormatUint(b.next, 10); b.all[id] == nil {
			b.next++
			return id
		}
	}
}

// living are the reservations that have not ended, but for one.
func (b *Book) living(except string) []Reservation {
	var all []Reservation
	for _, r := range b.all {
		if r.State != Ended && r.ID != except {
			all = append(all, *r)
		}
	}
	slices.SortFunc(all, func(x, y Reservation) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// living1 is a reservation that the caller may do something to.
func (b *Book) living1(id, doing string, by Caller) (Reservation, error) {
	r := b.all[id]
	if r == nil {
		return Reservation{}, b.unknown(id)
	}
	if err := b.policy.may(by, doing, r.Owner); err != nil {
		return Reservation{}, err
	}
	if r.State == Ended {
		return Reservation{}, refuse(Expired, "reservation %s ended at %s; make another one", id, r.EndedAt.Format(time.RFC3339))
	}
	return r.clone(), nil
}

func (b *Book) unknown(id string) error {
	return refuse(Unknown, "there is no reservation %q; see trunkline reserve list --all", id)
}

func (b *Book) admit(r Reservation) error {
	others := b.living(r.ID)
	if err := b.policy.quota(r, others); err != nil {
		return err
	}
	return b.policy.room(r, others)
}

// put enters a reservation and writes it down; if that fails, it never was.
func (b *Book) put(r Reservation) (Reservation, error) {
	old := b.all[r.ID]
	b.all[r.ID] = &r
	b.settle(&r)
	if err := b.save(); err != nil {
		if old == nil {
			delete(b.all, r.ID)
		} else {
			b.all[r.ID] = old
		}
		return Reservation{}, fmt.Errorf("the reservation cannot be written down, so it is as before: %w", err)
	}
	b.woken()
	return r.clone(), nil
}

func (b *Book) save() error {
	b.forget()
	records := make(map[string][]byte, len(b.all))
	for id, r := range b.all {
		c := *r
		c.Use = Use{PeakBps: r.Use.PeakBps} // the rest is of the moment
		data, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("writing down reservation %s: %w", id, err)
		}
		records[id] = data
	}
	err := b.store.Save(records)
	b.stale, b.kept = err != nil, b.clock.Boot()
	return err
}

// forget drops what ended long ago, and the oldest beyond the bound.
func (b *Book) forget() {
	var ended []*Reservation
	now := b.clock.Wall()
	for id, r := range b.all {
		switch {
		case r.State != Ended:
		case now.Sub(r.EndedAt) > keepEnded:
			delete(b.all, id)
		default:
			ended = append(ended, r)
		}
	}
	slices.SortFunc(ended, func(x, y *Reservation) int { return y.EndedAt.Compare(x.EndedAt) })
	for _, r := range ended[min(len(ended), maxEnded):] {
		delete(b.all, r.ID)
	}
}
