// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxBackoff is the longest pause after failures.
const maxBackoff = 10 * time.Minute

// Broker has the book follow what a system grants, and reports back. Of one that does not answer all stays as it was.
type Broker struct {
	Name   string // of the system: its reservations are NAME.ID
	Owner  string // whose they are, unless an order says otherwise and the owner is an operator
	Every  time.Duration
	System System
	Book   *Book
	Log    *slog.Logger

	mu      sync.Mutex // guards what follows
	last    time.Time  // that a round went well
	problem string     // with the latest round
	orders  int
	refused int

	said map[string]string // what is wrong with an order, so that it is said once; the running goroutine's alone
}

// SystemStatus is how it goes with a system.
type SystemStatus struct {
	Name    string    `json:"name"`
	Last    time.Time `json:"last,omitzero"` // time that it answered
	Problem string    `json:"problem,omitempty"`
	Orders  int       `json:"orders"`
	Refused int       `json:"refused"`
}

// Status says how it goes.
func (b *Broker) Status() SystemStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return SystemStatus{b.Name, b.last, b.problem, b.orders, b.refused}
}

// Run follows the system until ctx ends. After failures it waits longer, up to ten minutes.
func (b *Broker) Run(ctx context.Context) {
	pause := b.Every
	for {
		err := b.Round(ctx)
		if ctx.Err() != nil {
			return
		}
		pause = b.note(err, pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// note keeps how a round went, and says how long to wait for the next.
func (b *Broker) note(err error, pause time.Duration) time.Duration {
	b.mu.Lock()
	before := b.problem
	b.problem = ""
	if err != nil {
		b.problem = err.Error()
	} else {
		b.last = b.Book.clock.Wall()
	}
	b.mu.Unlock()
	switch {
	case err != nil && before == "":
		b.Log.Warn("a provisioning system cannot be followed; what it granted stays, and it is tried again", "system", b.Name, "err", err)
	case err == nil && before != "":
		b.Log.Info("a provisioning system is followed again", "system", b.Name)
	}
	if err == nil {
		return b.Every
	}
	return min(2*pause, max(maxBackoff, b.Every))
}

// Round pulls once, has the book follow, and reports.
func (b *Broker) Round(ctx context.Context) error {
	orders, err := b.System.Pull(ctx)
	if err != nil {
		return err
	}
	if len(orders) > MaxOrders {
		return fmt.Errorf("system %s has %d reservations, the most is %d; have it give this host only its own", b.Name, len(orders), MaxOrders)
	}
	reports := make([]Report, 0, len(orders))
	seen := map[string]bool{}
	refused := 0
	said := map[string]string{}
	for _, o := range orders {
		seen[b.id(o)] = true
		r := b.follow(o)
		if r.Error != "" {
			refused++
			said[o.ID] = r.Error
			if b.said[o.ID] != r.Error {
				b.Log.Warn("a reservation of a provisioning system is refused", "system", b.Name, "id", o.ID, "refused", r.Refused, "why", r.Error)
			}
		}
		reports = append(reports, r)
	}
	b.said = said
	b.endOthers(seen)
	b.mu.Lock()
	b.orders, b.refused = len(orders), refused
	b.mu.Unlock()
	if err := b.System.Report(ctx, reports); err != nil {
		return fmt.Errorf("reporting back: %w", err)
	}
	return nil
}

func (b *Broker) id(o Order) string { return b.Name + "." + o.ID }

func (b *Broker) caller() Caller {
	return Caller{Name: "system " + b.Name, Owner: b.Owner, System: b.Name}
}

// follow brings the book to one order. What was refused is asked for again each round: there may be room by then.
func (b *Broker) follow(o Order) Report {
	id := b.id(o)
	if !ValidName(o.ID) || !ValidName(id) {
		return Report{ID: o.ID, Refused: Malformed, Error: fmt.Sprintf("id %q must be letters, digits and . _ -, with the system's name up to 63", clipped(o.ID))}
	}
	err := o.Problem
	if err == nil {
		err = b.Book.follow(id, o.Request, b.caller())
	}
	now, getErr := b.Book.Get(id)
	report := Report{ID: o.ID}
	if getErr == nil {
		report = reportOf(o.ID, now)
	}
	if err != nil {
		report.Error, report.Refused = err.Error(), WhyOf(err)
	}
	return report
}

func clipped(s string) string { return s[:min(len(s), maxText)] }

// endOthers ends what the system no longer has.
func (b *Broker) endOthers(seen map[string]bool) {
	for _, r := range b.Book.List() {
		if r.System != b.Name || r.State == Ended || seen[r.ID] || !strings.HasPrefix(r.ID, b.Name+".") {
			continue
		}
		if _, err := b.Book.End(r.ID, b.caller()); err != nil {
			b.Log.Warn("a reservation that its system no longer has cannot be ended", "system", b.Name, "id", r.ID, "err", err)
		}
	}
}

// follow makes a reservation as the request says, or changes one to it, unless that has been done already: times like now and +2h
// are those of the first time, and what was ended here stays so until the request is another one.
func (b *Book) follow(id string, q Request, by Caller) error {
	q.ID = id
	text, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("writing down the request: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.all[id]
	if old != nil && old.Order == string(text) {
		return nil
	}
	if old == nil || old.State == Ended {
		_, err := b.add(q, by, string(text))
		return err
	}
	r, err := b.living1(id, "change", by)
	if err != nil {
		return err
	}
	t, err := q.read(b.reading(b.clock.Wall()), nil)
	if err != nil {
		return err
	}
	if r.Owner, err = b.policy.owner(by, q.Owner); err != nil {
		return err
	}
	t.keep(r.EndPoints)
	if q.Start == "" || q.Start == "now" { // that was when it was first asked for
		if q.For != "" {
			t.End = r.Start.Add(t.End.Sub(t.Start))
		}
		t.Start = r.Start
	}
	if !t.End.After(b.clock.Wall()) {
		return refuse(Expired, "the end %s has passed; choose a later one, or end the reservation", t.End.Format(time.RFC3339))
	}
	r.RateBps, r.Share, r.Start, r.End, r.EndPoints, r.Order = t.RateBps, t.Share, t.Start, t.End, t.EndPoints, string(text)
	r.Changed, r.Anchor = b.clock.Wall(), anchorAt(b.clock)
	if err := b.admit(r); err != nil {
		return err
	}
	_, err = b.put(r)
	return err
}

// keep takes over what was measured of end points that stay, unless the request says otherwise.
func (t *terms) keep(old []EndPoint) {
	for i := range t.EndPoints {
		e := &t.EndPoints[i]
		for _, o := range old {
			if o.Remote == e.Remote && !(e.Given && o.RTTus != e.RTTus && o.Given) {
				probe := e.Probe
				*e = o
				e.Probe = probe
			}
		}
	}
}
