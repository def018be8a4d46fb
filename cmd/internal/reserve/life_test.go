// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"strings"
	"testing"
	"time"
)

func stateAt(t *testing.T, b *Book, id string) State {
	t.Helper()
	if _, err := b.Tick(); err != nil {
		t.Fatal(err)
	}
	r, err := b.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

func TestLife(t *testing.T) {
	c := newClock()
	b := newBook(t, c, &memoryStore{}, Policy{})
	q := plain("10.0.0.0/8")
	q.Start = "+1h"
	r := mustAdd(t, b, q, root)
	for _, step := range []struct {
		pass time.Duration
		want State
	}{{0, Pending}, {time.Hour - time.Millisecond, Pending}, {time.Millisecond, Active}, {2*time.Hour - time.Millisecond, Active}, {time.Millisecond, Ended}, {time.Hour, Ended}} {
		c.pass(step.pass)
		if got := stateAt(t, b, r.ID); got != step.want {
			t.Errorf("after %s: %s, want %s", step.pass, got, step.want)
		}
	}
	if r, _ = b.Get(r.ID); r.Tuning == nil || r.Tuning.WindowBytes != 16_875_000 || r.EndedBy != "" {
		t.Errorf("of what was in force nothing is left to see: %+v", r)
	}
	c.pass(keepEnded + time.Minute)
	mustAdd(t, b, plain("11.0.0.0/8"), root)
	if len(b.List()) != 1 {
		t.Errorf("what ended long ago is still there: %+v", b.List())
	}
}

// A clock that jumps ends nothing early, and begins nothing early.
func TestClockJumps(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps func(c *fakeClock)
		want  State
	}{
		{"forward", func(c *fakeClock) { c.set(5 * time.Hour) }, Active},
		{"forward, then its time", func(c *fakeClock) { c.set(5 * time.Hour); c.pass(2 * time.Hour) }, Ended},
		{"forward and back", func(c *fakeClock) { c.set(24 * time.Hour); c.pass(time.Hour); c.set(-24 * time.Hour) }, Active},
		{"back", func(c *fakeClock) { c.set(-time.Hour); c.pass(2*time.Hour + time.Minute) }, Active},
		{"back, then its end", func(c *fakeClock) { c.set(-time.Hour); c.pass(3*time.Hour + time.Minute) }, Ended},
		{"none", func(c *fakeClock) { c.pass(2 * time.Hour) }, Ended},
	} {
		clock := newClock()
		b := newBook(t, clock, &memoryStore{}, Policy{})
		r := mustAdd(t, b, plain("10.0.0.0/8"), root)
		clock.pass(time.Second)
		c.steps(clock)
		if c.name == "back" || c.name == "forward and back" {
			// Before its start by the wall clock it would be pending; what matters is that it has not ended.
			if got := stateAt(t, b, r.ID); got == Ended {
				t.Errorf("%s: it has ended early", c.name)
			}
			continue
		}
		if got := stateAt(t, b, r.ID); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	clock := newClock()
	b := newBook(t, clock, &memoryStore{}, Policy{})
	q := plain("10.0.0.0/8")
	q.Start = "+1h"
	r := mustAdd(t, b, q, root)
	clock.set(24 * time.Hour)
	if got := stateAt(t, b, r.ID); got != Pending {
		t.Errorf("a jump began it early: %s", got)
	}
}

// A restart of the agent changes nothing, whatever the clock did meanwhile; after a reboot there is only the wall's clock.
func TestRestart(t *testing.T) {
	c, s := newClock(), &memoryStore{}
	b := newBook(t, c, s, Policy{})
	r := mustAdd(t, b, plain("10.0.0.0/8"), root)
	later := plain("11.0.0.0/8")
	later.Start = "+1d"
	mustAdd(t, b, later, root)
	c.pass(time.Hour)
	c.set(3 * time.Hour)
	b = newBook(t, c, s, Policy{})
	if got := stateAt(t, b, r.ID); got != Active {
		t.Errorf("after a restart and a jump: %s, want %s", got, Active)
	}
	if got := stateAt(t, b, "r2"); got != Pending {
		t.Errorf("r2: %s", got)
	}
	if again := mustAdd(t, b, plain("12.0.0.0/8"), root); again.ID != "r3" {
		t.Errorf("a name is used twice: %s", again.ID)
	}
	c.id, c.boot = "boot-2", time.Minute
	b = newBook(t, c, s, Policy{})
	if got := stateAt(t, b, r.ID); got != Ended {
		t.Errorf("after a reboot, its end past: %s, want %s", got, Ended)
	}
	s.records["broken"] = []byte("{")
	if b, err := NewBook(c, s, Policy{}, s.records); err == nil || !strings.Contains(err.Error(), "broken") || len(b.List()) != 3 {
		t.Errorf("%v, want an error that names the record, and the others", err)
	}
}

// Daylight saving: an end is a point in time, whatever local clocks do on the way.
func TestDaylightSaving(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("this machine has no time zones: ", err)
	}
	c := newClock()
	c.wall = time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC) // midnight there; clocks are set back at three
	q := reading{now: c.Wall(), loc: berlin}
	got, err := Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", End: "2026-10-25 04:00"}.read(q, nil)
	if err != nil || got.End.Sub(got.Start) != 5*time.Hour {
		t.Errorf("%s, %v; want five hours from midnight to four", got.End.Sub(got.Start), err)
	}
}

func TestInForceMerges(t *testing.T) {
	p := Policy{Paths: house().Paths}
	b := newBook(t, newClock(), &memoryStore{}, p)
	mustAdd(t, b, Request{ID: "a", Remote: []string{"203.0.113.0/24", "10.0.0.0/8"}, Rate: "600Mbit", For: "2h", RTT: "100ms"}, root)
	mustAdd(t, b, Request{ID: "b", Remote: []string{"203.0.113.0/24"}, Rate: "400Mbit", Share: "50%", For: "1h", RTT: "120ms"}, root)
	mustAdd(t, b, Request{ID: "c", Remote: []string{"203.0.113.0/28"}, Rate: "1Mbit", Start: "+3h", For: "1h", RTT: "1ms"}, root)
	mustAdd(t, b, Request{ID: "d", Remote: []string{"192.0.2.0/24"}, Rate: "1Mbit", For: "1h", RTT: "1ms"}, root)
	set := b.InForce()
	if len(set) != 2 || set[0].ID != "a+b" || set[0].RateBps != 100e6 || set[0].RTT != 120*time.Millisecond || len(set[0].Remote) != 2 || set[1].ID != "d" {
		t.Errorf("%+v", set)
	}
	if left := set[0].EndBoot - newClock().Boot(); left != time.Hour {
		t.Errorf("the first of them ends in %s", left)
	}
}
