// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// Request asks for a reservation, or for a change of one: then what is empty stays as it is. It is the JSON of the control
// socket, of files, and of systems; values are written as on the command line.
type Request struct {
	ID     string   `json:"id,omitempty"` // default: the next number
	Owner  string   `json:"owner,omitempty"`
	Remote []string `json:"remote,omitempty"` // prefixes and addresses of the end points
	Rate   string   `json:"rate,omitempty"`   // like 1Gbit, of the path as a whole
	Share  string   `json:"share,omitempty"`  // this host's part, like 25% or 0.25; default all
	Start  string   `json:"start,omitempty"`  // default now
	End    string   `json:"end,omitempty"`    // this or for
	For    string   `json:"for,omitempty"`    // like 2h, from the start
	RTT    string   `json:"rtt,omitempty"`    // like 135ms, until it is measured
	Probe  []string `json:"probe,omitempty"`  // ADDRESS:PORT, at most one for each end point
}

// idForm bounds names: they appear in paths of URLs and files.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidName says whether a name can be an id, or that of an owner.
func ValidName(s string) bool { return idForm.MatchString(s) }

// terms are a request that makes sense.
type terms struct {
	RateBps    uint64
	Share      float64
	Start, End time.Time
	EndPoints  []EndPoint
}

// reading is what a request is read with.
type reading struct {
	now       time.Time
	loc       *time.Location
	probePort uint16 // of end points that are single addresses; 0: none
}

// read makes terms of a request; old are those that it changes, nil for a new reservation.
func (q Request) read(c reading, old *terms) (t terms, err error) {
	if err := q.bounded(); err != nil {
		return t, err
	}
	t = terms{Share: 1, Start: c.now}
	if old != nil {
		t = *old
		t.EndPoints = slices.Clone(old.EndPoints)
	}
	for _, step := range []func(reading, *terms, bool) *Refusal{q.remote, q.probes, q.rtt, q.rate, q.times} {
		if r := step(c, &t, old == nil); r != nil {
			return t, r
		}
	}
	return t, nil
}

// bounded refuses what is too large before it is looked at.
func (q Request) bounded() error {
	single := []string{q.ID, q.Owner, q.Rate, q.Share, q.Start, q.End, q.For, q.RTT}
	if len(q.Remote) > maxEndPoints || len(q.Probe) > maxEndPoints {
		return refuse(Malformed, "the request names more than %d end points; make several reservations", maxEndPoints)
	}
	for _, s := range slices.Concat(single, q.Remote, q.Probe) {
		if len(s) > maxText {
			return refuse(Malformed, "a value of the request has %d bytes, the most is %d", len(s), maxText)
		}
	}
	if q.ID != "" && !idForm.MatchString(q.ID) {
		return refuse(Malformed, "id %q must be up to 63 letters, digits and . _ -", q.ID)
	}
	if q.Owner != "" && !idForm.MatchString(q.Owner) {
		return refuse(Malformed, "owner %q must be up to 63 letters, digits and . _ -", q.Owner)
	}
	return nil
}

// remote keeps what was measured of end points that stay.
func (q Request) remote(c reading, t *terms, made bool) *Refusal {
	if len(q.Remote) == 0 {
		if made {
			return refuse(Malformed, "remote is missing; name the end points, like 203.0.113.0/24")
		}
		return nil
	}
	old := t.EndPoints
	t.EndPoints = nil
	for _, s := range q.Remote {
		p, err := parseRemote(strings.TrimSpace(s))
		if err != nil {
			return err
		}
		for _, e := range t.EndPoints {
			if e.Remote.Overlaps(p) {
				return refuse(Malformed, "remote %s and %s overlap; give one of them", e.Remote, p)
			}
		}
		e := EndPoint{Remote: p}
		if i := slices.IndexFunc(old, func(o EndPoint) bool { return o.Remote == p }); i >= 0 {
			e = old[i]
		} else if p.IsSingleIP() && c.probePort != 0 {
			e.Probe = netip.AddrPortFrom(p.Addr(), c.probePort)
		}
		t.EndPoints = append(t.EndPoints, e)
	}
	return nil
}

func parseRemote(s string) (netip.Prefix, *Refusal) {
	p, err := netip.ParsePrefix(s)
	if a, addrErr := netip.ParseAddr(s); addrErr == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
		if a.Zone() != "" {
			return p, refuse(Malformed, "remote %q has a zone; link-local addresses have no path to reserve", s)
		}
	}
	switch {
	case err != nil:
		return p, refuse(Malformed, "remote %q is not a prefix; write it like 203.0.113.0/24 or 2001:db8::/32", s)
	case p.Addr().Is4In6():
		return p, refuse(Malformed, "remote %q is an IPv4 prefix in IPv6 clothes; write it as IPv4", s)
	case p != p.Masked():
		return p, refuse(Malformed, "remote %q has bits set behind its length; write %s", s, p.Masked())
	case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast():
		return p, refuse(Malformed, "remote %q has no path to reserve: it is loopback, link-local or multicast", s)
	}
	return p, nil
}

func (q Request) probes(_ reading, t *terms, _ bool) *Refusal {
	for _, s := range q.Probe {
		a, err := netip.ParseAddrPort(s)
		if err != nil || a.Port() == 0 {
			return refuse(Malformed, "probe %q is not an address and a port, like 203.0.113.9:443 or [2001:db8::9]:443", s)
		}
		i := slices.IndexFunc(t.EndPoints, func(e EndPoint) bool { return e.Remote.Contains(a.Addr()) })
		if i < 0 {
			return refuse(Malformed, "probe %q lies in no end point of the reservation; name an address in one", s)
		}
		t.EndPoints[i].Probe = a
	}
	return nil
}

func (q Request) rtt(_ reading, t *terms, _ bool) *Refusal {
	if q.RTT == "" {
		return nil
	}
	d, err := units.Duration(q.RTT)
	if err != nil || d < MinRTT || d > MaxRTT {
		return refuse(Malformed, "rtt %q must be a time from %s to %s, like 135ms", q.RTT, units.FormatDuration(MinRTT), units.FormatDuration(MaxRTT))
	}
	for i := range t.EndPoints {
		e := &t.EndPoints[i]
		*e = EndPoint{Remote: e.Remote, Probe: e.Probe, Given: true, RTTus: d.Microseconds()}
	}
	return nil
}

func (q Request) rate(_ reading, t *terms, made bool) *Refusal {
	if q.Rate != "" {
		v, err := units.Rate(q.Rate)
		if err != nil {
			return refuse(Malformed, "%v", err)
		}
		if t.RateBps = v / 8; t.RateBps > MaxRateBps {
			return refuse(Malformed, "rate %q is above 1Tbit", q.Rate)
		}
	} else if made {
		return refuse(Malformed, "rate is missing; name it, like 1Gbit")
	}
	if q.Share != "" {
		v, err := units.Percent(q.Share)
		if err != nil || v == 0 {
			return refuse(Malformed, "share %q must be above 0 and at most 100%%, like 25%%", q.Share)
		}
		t.Share = v
	}
	if float64(t.RateBps)*t.Share < minRateBps {
		return refuse(Malformed, "this host's part of the rate is %s, the least is 100 kbit/s", units.FormatRate(float64(t.RateBps)*t.Share*8))
	}
	return nil
}

func (q Request) times(c reading, t *terms, made bool) *Refusal {
	length := t.End.Sub(t.Start)
	if q.Start != "" {
		v, err := ParseTime(q.Start, c.now, c.loc)
		if err != nil {
			return refuse(Malformed, "start %v", err)
		}
		t.Start = v
		if !made && q.End == "" && q.For == "" {
			t.End = v.Add(length) // a start that moves takes the end along
		}
	}
	switch {
	case q.End != "" && q.For != "":
		return refuse(Malformed, "end and for are both given; give one of them")
	case q.End != "":
		v, err := ParseTime(q.End, c.now, c.loc)
		if err != nil {
			return refuse(Malformed, "end %v", err)
		}
		t.End = v
	case q.For != "":
		d, err := ParseSpan(q.For)
		if err != nil {
			return refuse(Malformed, "for %v", err)
		}
		t.End = t.Start.Add(d)
	case made:
		return refuse(Malformed, "neither end nor for is given; say how long, like for 2h")
	}
	switch {
	case !t.End.After(t.Start):
		return refuse(Malformed, "the end %s is not after the start %s", t.End.Format(time.RFC3339), t.Start.Format(time.RFC3339))
	case !t.End.After(c.now):
		return refuse(Expired, "the end %s has passed: it is %s now; choose a later one, or end the reservation", t.End.Format(time.RFC3339), c.now.Format(time.RFC3339))
	case t.End.Sub(c.now) > maxAhead:
		return refuse(Malformed, "the end %s is more than five years ahead", t.End.Format(time.RFC3339))
	}
	return nil
}
