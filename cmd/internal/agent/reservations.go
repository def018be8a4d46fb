// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/statedb"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/policy"
)

// granted are the reservations: the book says which, the keeper has the kernel side hold them.
type granted struct {
	db      *statedb.DB
	book    *reserve.Book
	keeper  *reserve.Keeper
	problem string // with what earlier agents had granted
	systems systems
}

// startReservations takes up what was granted before, and puts it in force before the first connection comes.
func (a *agent) startReservations() {
	g := &a.granted
	g.systems.wake = make(chan struct{}, 1)
	path := a.config.ReservationDB()
	var records map[string][]byte
	var err error
	g.db, records, err = statedb.Open(path, "reservations")
	var store reserve.Store = g.db
	if err != nil {
		// Writing what is known now would wipe out what cannot be read.
		store = unreadable{err}
		g.problem = fmt.Sprintf("reservations cannot be read, so none is in force and none is made: %v; mend it and restart the agent", err)
	}
	if aside := g.db.Aside(); aside != "" {
		g.problem = fmt.Sprintf("the database of reservations was damaged, and is now %s: make those that are to go on again", aside)
	}
	g.book, err = reserve.NewBook(reserve.SystemClock(), store, a.config.Reservations.Policy, records)
	if err != nil {
		g.problem = fmt.Sprintf("of %s %v: make them again", path, err)
	}
	if g.problem != "" {
		a.log.Warn("reservations", "problem", g.problem)
	}
	prober := reserve.TCPProber{Own: func(cookie uint64) error { return a.loader.Own(cookie, 0, false) }, Disown: a.loader.Disown}
	g.keeper = reserve.NewKeeper(g.book, reservedKernel{a.loader}, prober, a.log)
	g.keeper.Enforce()
}

func (g *granted) close() error {
	if g.db == nil {
		return nil
	}
	return g.db.Close()
}

// unreadable keeps a database as it is.
type unreadable struct{ err error }

func (u unreadable) Save(map[string][]byte) error { return u.err }

// reservedKernel is the loader as reservations see it.
type reservedKernel struct{ *loader.Loader }

func (k reservedKernel) Reserve(set []policy.Reserved) error { return k.Loader.Reserve(set) }

// Connections leaves out the applications' ends of steered ones, which lead to this host.
func (k reservedKernel) Connections() ([]reserve.Connection, error) {
	flows, err := k.BareFlows()
	if err != nil {
		return nil, err
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	seen := make([]reserve.Connection, 0, len(flows))
	for _, f := range flows {
		if f.Kind == "steered" {
			continue
		}
		seen = append(seen, reserve.Connection{
			Remote: f.Remote.Addr(), Age: seconds(f.AgeS), Idle: seconds(f.UpdatedS),
			MinRTT: time.Duration(f.RTTMinUs) * time.Microsecond, SRTT: time.Duration(f.SRTTUs) * time.Microsecond,
		})
	}
	return seen, nil
}

func (k reservedKernel) Use() []reserve.Use {
	all := k.ReservedUse()
	use := make([]reserve.Use, len(all))
	for i, u := range all {
		use[i] = reserve.Use{ID: u.ID, Flows: u.Flows, GoodputBps: u.GoodputBps, ReceivedBps: u.ReceivedBps}
		for _, f := range u.PerFlow {
			use[i].PerFlow = append(use[i].PerFlow, reserve.FlowUse{Local: f.Local, Remote: f.Remote, ShareBps: f.ShareBps,
				WindowBytes: f.WindowBytes, GoodputBps: f.GoodputBps, Retransmits: f.Retransmits})
		}
	}
	return use
}

// Reservations gives all reservations and the declared paths.
func (a *agent) Reservations() (control.Reservations, error) {
	all := control.Reservations{Now: time.Now().UTC(), Reservations: a.granted.book.List(), Paths: []control.ReservedPath{},
		Problems: a.reservationProblems(), Systems: a.granted.systems.status()}
	for _, p := range a.granted.book.Policy().Paths {
		all.Paths = append(all.Paths, control.ReservedPath{Name: p.Name, Remote: p.Remote, CapacityBps: p.CapacityBps})
	}
	return all, nil
}

// reservationProblems are what keeps reservations from being of use.
func (a *agent) reservationProblems() []string {
	problems := []string{}
	if a.granted.problem != "" {
		problems = append(problems, a.granted.problem)
	}
	if p := a.granted.keeper.Problem(); p != "" {
		problems = append(problems, "reservations cannot be put in force, so connections are as under window: auto: "+p)
	}
	problems = append(problems, a.granted.systems.problems()...)
	a.mu.Lock()
	table := a.table
	a.mu.Unlock()
	used := slices.ContainsFunc(table.Rules(), func(r policy.Rule) bool { return r.Mode() == policy.WindowReserved })
	for _, r := range a.granted.book.List() {
		if r.State != reserve.Ended && !used {
			problems = append(problems, "there are reservations, and no rule has window: reserved, so no connection uses them; give it to the rule of their end points")
			used = true // said once
		}
		if r.State == reserve.Suspended {
			problems = append(problems, fmt.Sprintf("reservation %s is suspended, its connections are as under window: auto: %s", r.ID, r.Reason))
		}
	}
	return problems
}

// Reservation gives one, with the connections that use it.
func (a *agent) Reservation(id string) (reserve.Reservation, error) { return a.granted.book.Get(id) }

// Reserve makes a reservation.
func (a *agent) Reserve(q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return a.granted.book.Add(q, by)
}

// ChangeReservation changes one.
func (a *agent) ChangeReservation(id string, q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return a.granted.book.Change(id, q, by)
}

// EndReservation ends one.
func (a *agent) EndReservation(id string, by reserve.Caller) (reserve.Reservation, error) {
	return a.granted.book.End(id, by)
}
