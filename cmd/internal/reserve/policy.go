// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// Policy says who may reserve what. The zero Policy lets root alone reserve, and knows of no path's capacity.
type Policy struct {
	Owners    []Owner
	Paths     []Path
	ProbePort uint16        // asked for the round-trip time of end points that are single addresses; 0: none
	Band      time.Duration // how far a round-trip time may be off; 0: a quarter of it, from 2 to 20 ms
}

// Role is what an owner may do.
type Role string

// The roles.
const (
	User     Role = "user"     // reserve in its own name; change and end what is its own
	Operator Role = "operator" // the same for every owner
)

// Owner is who reservations belong to, and what it may have.
type Owner struct {
	Name    string
	Role    Role
	Users   []string      // who acts for it, by name or number
	Groups  []string      // likewise
	RateBps uint64        // bytes per second, of all its reservations at any one time; 0: no bound
	Count   int           // of its reservations that have not ended; 0: no bound
	Longest time.Duration // a reservation; 0: no bound
}

// Path is what the operator of a network has declared: how much can be reserved towards some prefixes at any one time.
type Path struct {
	Name        string
	Remote      []netip.Prefix
	CapacityBps uint64 // bytes per second, of the link layer
}

// Caller is who asks. What the kernel vouches for, or a system of the configuration.
type Caller struct {
	Name   string   // for the log
	Root   bool     // may do everything that quotas and capacities allow
	IDs    []string // the user's name and number
	Groups []string // its groups' names and numbers
	Owner  string   // it acts for this owner, whatever its user is; for systems
	System string   // its name, "" for others
}

// acting gives the owners that a caller acts for.
func (p Policy) acting(c Caller) []Owner {
	var found []Owner
	for _, o := range p.Owners {
		any := func(have, want []string) bool {
			return slices.ContainsFunc(have, func(h string) bool { return slices.Contains(want, h) })
		}
		if o.Name == c.Owner && c.Owner != "" || any(c.IDs, o.Users) || any(c.Groups, o.Groups) {
			found = append(found, o)
		}
	}
	return found
}

// may says whether the caller may do something to what an owner has.
func (p Policy) may(c Caller, doing, owner string) error {
	if c.Root {
		return nil
	}
	acting := p.acting(c)
	for _, o := range acting {
		if o.Name == owner || o.Role == Operator {
			return nil
		}
	}
	if len(acting) == 0 {
		return refuse(Unauthorised, "%s may not %s reservations: it acts for no owner; use sudo, or have it added to `users` of one under `reservations: owners`", c.Name, doing)
	}
	names := make([]string, len(acting))
	for i, o := range acting {
		names[i] = o.Name
	}
	return refuse(Unauthorised, "%s may not %s a reservation of owner %s: it acts for %s, as user; an operator may", c.Name, doing, owner, strings.Join(names, ", "))
}

// owner is who a new reservation belongs to: who is named, else the one that the caller acts for.
func (p Policy) owner(c Caller, named string) (string, error) {
	switch acting := p.acting(c); {
	case named != "":
	case c.Owner != "":
		named = c.Owner
	case len(acting) == 1:
		named = acting[0].Name
	case len(acting) > 1:
		return "", refuse(Malformed, "owner is missing, and %s acts for several; name one", c.Name)
	case c.Root:
		named = "root"
	}
	if err := p.may(c, "make", named); err != nil {
		return "", err
	}
	if _, declared := p.find(named); !declared && len(p.Owners) > 0 && !(c.Root && named == "root") {
		return "", refuse(Unauthorised, "owner %q is not declared; declared are %s", named, strings.Join(p.names(), ", "))
	}
	return named, nil
}

func (p Policy) names() []string {
	names := make([]string, len(p.Owners))
	for i, o := range p.Owners {
		names[i] = o.Name
	}
	return names
}

func (p Policy) find(owner string) (Owner, bool) {
	i := slices.IndexFunc(p.Owners, func(o Owner) bool { return o.Name == owner })
	if i < 0 {
		return Owner{}, false
	}
	return p.Owners[i], true
}

// quota refuses what is more than the owner may have, beside its other reservations.
func (p Policy) quota(r Reservation, others []Reservation) error {
	o, declared := p.find(r.Owner)
	if !declared {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(others), func(x Reservation) bool { return x.Owner != r.Owner })
	if o.Longest > 0 && r.End.Sub(r.Start) > o.Longest {
		return refuse(OverQuota, "the reservation would last %s; owner %s may reserve for %s at most", units.FormatDuration(r.End.Sub(r.Start)),
			o.Name, units.FormatDuration(o.Longest))
	}
	if o.Count > 0 && len(own) >= o.Count {
		return refuse(OverQuota, "owner %s has %d reservations, and may have %d; end one first", o.Name, len(own), o.Count)
	}
	if o.RateBps == 0 {
		return nil
	}
	most, at, _ := peak(own, r.Start, r.End)
	if most+r.RateBps > o.RateBps {
		return refuse(OverQuota, "owner %s may reserve %s at any one time, and has %s at %s; ask for %s", o.Name, rate(o.RateBps), rate(most),
			at.Format(time.RFC3339), lessOrLater(o.RateBps, most))
	}
	return nil
}

func rate(bps uint64) string { return units.FormatRate(float64(bps) * 8) }

func lessOrLater(have, taken uint64) string {
	if taken >= have {
		return "another time"
	}
	return fmt.Sprintf("%s at most, or for another time", rate(have-taken))
}
