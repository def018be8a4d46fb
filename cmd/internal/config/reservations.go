// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// Reservations says who may reserve paths, how much they carry, and where reservations come from.
type Reservations struct {
	reserve.Policy
	Systems []System
}

// DefaultProbePort is asked for the round-trip time of reserved end points; a refusal is an answer, too.
const DefaultProbePort = 443

const (
	minQuota   = 100_000 // bits per second
	maxCount   = reserve.MaxReservations
	minBand    = 100 * time.Microsecond
	maxBand    = time.Second
	maxLongest = 5 * 366 * 24 * time.Hour
)

func (d *decoder) reservations(n ast.Node, to *Reservations) {
	d.mapping(n, "reservations", reservationsKeys, fields{
		"owners":  func(n ast.Node) { d.list(n, "owners", func(n ast.Node) { d.owner(n, to) }) },
		"paths":   func(n ast.Node) { d.list(n, "paths", func(n ast.Node) { d.reservedPath(n, to) }) },
		"systems": func(n ast.Node) { d.list(n, "systems", func(n ast.Node) { d.system(n, to) }) },
		"probe_port": func(n ast.Node) {
			if s, _ := scalar(n); s == "off" {
				to.ProbePort = 0
				return
			}
			d.number(n, "probe_port", 1, math.MaxUint16, func(v uint64) { to.ProbePort = uint16(v) })
		},
		"band": func(n ast.Node) { d.duration(n, "band", minBand, maxBand, func(v time.Duration) { to.Band = v }) },
	})
}

func (d *decoder) owner(n ast.Node, to *Reservations) {
	o := reserve.Owner{Role: reserve.User}
	before := len(d.problems)
	d.mapping(n, "an owner", ownerKeys, fields{
		"name": func(n ast.Node) { d.reservedName(n, "owner name", &o.Name) },
		"role": func(n ast.Node) {
			d.word(n, "role", (*string)(&o.Role), string(reserve.User), string(reserve.Operator))
		},
		"users":  func(n ast.Node) { d.texts(n, "users", &o.Users) },
		"groups": func(n ast.Node) { d.texts(n, "groups", &o.Groups) },
		"rate":   func(n ast.Node) { d.reservedRate(n, "rate", &o.RateBps) },
		"count":  func(n ast.Node) { d.number(n, "count", 1, maxCount, func(v uint64) { o.Count = int(v) }) },
		"longest": func(n ast.Node) {
			d.text(n, "longest", func(s string) {
				v, err := reserve.ParseSpan(s)
				if err != nil || v < time.Minute || v > maxLongest {
					d.failf(n, "longest %q must be a time from 1m to 5 years, like 24h or 3d", s)
				}
				o.Longest = v
			})
		},
	})
	switch {
	case len(d.problems) > before:
	case o.Name == "":
		d.failf(n, "an owner has no name; give it one, like {name: astro, users: [alice]}")
	case slices.ContainsFunc(to.Owners, func(other reserve.Owner) bool { return other.Name == o.Name }):
		d.failf(n, "owner %q is given twice; remove one", o.Name)
	}
	to.Owners = append(to.Owners, o)
}

func (d *decoder) reservedPath(n ast.Node, to *Reservations) {
	var p reserve.Path
	before := len(d.problems)
	d.mapping(n, "a path", pathKeys, fields{
		"name": func(n ast.Node) { d.reservedName(n, "path name", &p.Name) },
		"remote": func(n ast.Node) {
			one := func(n ast.Node) {
				d.text(n, "remote", func(s string) {
					r, err := parsePrefix(s)
					if err != nil {
						d.failf(n, "remote %v", err)
						return
					}
					p.Remote = append(p.Remote, r)
				})
			}
			if _, ok := scalar(n); ok {
				one(n)
				return
			}
			d.list(n, "remote", one)
		},
		"capacity": func(n ast.Node) { d.reservedRate(n, "capacity", &p.CapacityBps) },
	})
	switch {
	case len(d.problems) > before:
	case p.Name == "":
		d.failf(n, "a path has no name; give it one, like {name: kreonet, remote: 203.0.113.0/24, capacity: 10Gbit}")
	case len(p.Remote) == 0:
		d.failf(n, "path %q has no remote; name the prefixes that it leads to, like remote: 203.0.113.0/24", p.Name)
	case p.CapacityBps == 0:
		d.failf(n, "path %q has no capacity; say what can be reserved on it, like capacity: 10Gbit", p.Name)
	}
	for _, other := range to.Paths {
		if other.Name == p.Name {
			d.failf(n, "path %q is given twice; remove one", p.Name)
		}
		for _, r := range p.Remote {
			if slices.ContainsFunc(other.Remote, func(o netip.Prefix) bool { return o == r }) {
				d.failf(n, "%s is on path %q and on path %q; remove it from one", r, other.Name, p.Name)
			}
		}
	}
	to.Paths = append(to.Paths, p)
}

// reservedName reads a name that can also be part of a URL and of a file's name.
func (d *decoder) reservedName(n ast.Node, what string, to *string) {
	d.text(n, what, func(s string) {
		if !reserve.ValidName(s) {
			d.failf(n, "%s %q must be up to 63 letters, digits and . _ -", what, s)
		}
		*to = s
	})
}

func (d *decoder) reservedRate(n ast.Node, what string, to *uint64) {
	d.text(n, what, func(s string) {
		v, err := units.Rate(s)
		switch {
		case err != nil:
			d.failf(n, "%s: %v", what, err)
		case v < minQuota || v/8 > reserve.MaxRateBps:
			d.failf(n, "%s %q must be from 100kbit to 1Tbit", what, s)
		}
		*to = v / 8
	})
}
