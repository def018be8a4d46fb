// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"net/netip"
	"slices"
	"time"
)

// State is where a reservation is in its life.
//
//	pending ──start──> active <──path is back── suspended
//	                     │ └──path is not as measured──^ │
//	                     └────────── end ────────────────┴──> ended
type State string

// The states.
const (
	Pending   State = "pending"
	Active    State = "active"    // in force
	Suspended State = "suspended" // within its time, and not in force: connections are as under window: auto
	Ended     State = "ended"
)

// Reservation is a path that is granted to an owner for a time. All times are UTC.
type Reservation struct {
	ID        string     `json:"id"`
	Owner     string     `json:"owner"`
	RateBps   uint64     `json:"rate_Bps"` // bytes per second, of the link layer, of the path as a whole
	Share     float64    `json:"share"`    // this host's part of the rate, where several hosts use the path: 1 is all of it
	Start     time.Time  `json:"start"`
	End       time.Time  `json:"end"`
	EndPoints []EndPoint `json:"end_points"`

	System  string    `json:"system,omitempty"` // the provisioning system that it came from; "": asked for here
	Order   string    `json:"order,omitempty"`  // what that system asked for, in its words
	MadeBy  string    `json:"made_by"`
	Made    time.Time `json:"made"`
	Changed time.Time `json:"changed,omitzero"`
	EndedBy string    `json:"ended_by,omitempty"` // "": by its time
	EndedAt time.Time `json:"ended_at,omitzero"`

	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"` // why it is suspended
	Since  time.Time `json:"state_since"`
	Tuning *Tuning   `json:"tuning,omitempty"` // in force, or, after the end, last in force

	Use    Use    `json:"use"`
	Anchor anchor `json:"anchor"`
}

// EndPoint is one of the places at the other side.
type EndPoint struct {
	Remote  netip.Prefix   `json:"remote"`
	Probe   netip.AddrPort `json:"probe,omitzero"`    // what is asked for the round-trip time where no connection tells it; not valid: nothing
	Given   bool           `json:"rtt_given"`         // the round-trip time is the request's, not yet measured
	RTTus   int64          `json:"rtt_us,omitempty"`  // without a queue; 0: not known yet
	RTTAt   time.Time      `json:"rtt_at,omitzero"`   // when that was measured
	LastUs  int64          `json:"last_us,omitempty"` // the latest measurement
	LastAt  time.Time      `json:"last_at,omitzero"`
	Count   uint64         `json:"count"`             // of measurements since the path was provisioned
	Source  string         `json:"source,omitempty"`  // of the latest: flows or probe
	Problem string         `json:"problem,omitempty"` // why the reservation is not in force for it; "": it is, once its time has come
}

// RTT is the end point's round-trip time.
func (e EndPoint) RTT() time.Duration { return time.Duration(e.RTTus) * time.Microsecond }

// usable says whether the path to the end point is as it was measured.
func (e EndPoint) usable() bool { return e.RTTus > 0 && e.Problem == "" }

// HostRateBps is this host's part of the rate, in bytes per second.
func (r Reservation) HostRateBps() uint64 { return uint64(float64(r.RateBps) * r.Share) }

// prefixes are those of the end points.
func (r Reservation) prefixes() []netip.Prefix {
	out := make([]netip.Prefix, len(r.EndPoints))
	for i, e := range r.EndPoints {
		out[i] = e.Remote
	}
	return out
}

// overlaps says whether any end point of the reservation shares an address with any of the prefixes.
func (r Reservation) overlaps(others []netip.Prefix) bool {
	return slices.ContainsFunc(r.EndPoints, func(e EndPoint) bool {
		return slices.ContainsFunc(others, e.Remote.Overlaps)
	})
}

// meets says whether any of the reservation lies within a time.
func (r Reservation) meets(start, end time.Time) bool {
	return r.Start.Before(end) && start.Before(r.End)
}

func (r Reservation) clone() Reservation {
	r.EndPoints = slices.Clone(r.EndPoints)
	if r.Tuning != nil {
		t := *r.Tuning
		r.Tuning = &t
	}
	return r
}

// tune computes what the reservation needs now: its part of the rate, and the longest round-trip time among its usable end
// points, so that the window reaches the farthest. Nil: none is usable, or the first problem is its reason.
func (r Reservation) tune(at time.Time) (*Tuning, string) {
	var longest time.Duration
	var prefixes []string
	reason := ""
	for _, e := range r.EndPoints {
		if e.usable() {
			longest = max(longest, e.RTT())
			prefixes = append(prefixes, e.Remote.String())
		} else if reason == "" {
			reason = e.Remote.String() + ": " + e.why()
		}
	}
	if longest == 0 {
		return nil, reason
	}
	t := TuningFor(r.HostRateBps(), longest)
	t.Since, t.Prefixes = at, prefixes
	return &t, ""
}

func (e EndPoint) why() string {
	switch {
	case e.Problem != "":
		return e.Problem
	case e.Probe.IsValid():
		return "its round-trip time is not known yet: there is no connection, and " + e.Probe.String() + " answers no probe"
	}
	return "its round-trip time is not known yet: there is no connection and nothing to probe; name a port by --probe, or the time by --rtt"
}
