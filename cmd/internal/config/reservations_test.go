// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

func TestReservations(t *testing.T) {
	c, err := Parse("t.yaml", []byte(`
rules: [{remote: 203.0.113.0/24}]
reservations:
  owners:
    - {name: astro, users: [alice, 1001], groups: [stars], rate: 2Gbit, count: 4, longest: 1d}
    - {name: noc, role: operator, users: [olga]}
  paths:
    - {name: kreonet, remote: [203.0.113.0/24, "2001:db8::/32"], capacity: 10Gbit}
    - {name: lab, remote: 192.0.2.7, capacity: 1Gbit}
  probe_port: off
  band: 5ms
`))
	if err != nil {
		t.Fatal(err)
	}
	want := reserve.Policy{
		Owners: []reserve.Owner{
			{Name: "astro", Role: reserve.User, Users: []string{"alice", "1001"}, Groups: []string{"stars"}, RateBps: 250e6, Count: 4, Longest: 24 * time.Hour},
			{Name: "noc", Role: reserve.Operator, Users: []string{"olga"}},
		},
		Paths: []reserve.Path{
			{Name: "kreonet", Remote: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}, CapacityBps: 1250e6},
			{Name: "lab", Remote: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}, CapacityBps: 125e6},
		},
		Band: 5 * time.Millisecond,
	}
	if !reflect.DeepEqual(c.Reservations.Policy, want) {
		t.Errorf("%+v\nwant %+v", c.Reservations.Policy, want)
	}
	if c, err = Parse("t.yaml", []byte("rules: [{remote: 203.0.113.0/24}]")); err != nil || c.Reservations.ProbePort != DefaultProbePort {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestBadReservations(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"owner: []", `unknown key "owner" in reservations; did you mean "owners"?`},
		{"owners: [{users: [alice]}]", `an owner has no name; give it one`},
		{"owners: [{name: a b}]", `owner name "a b" must be up to 63 letters`},
		{"owners: [{name: a}, {name: a}]", `owner "a" is given twice; remove one`},
		{"owners: [{name: a, role: root}]", `role "root" is unknown; known are user, operator`},
		{"owners: [{name: a, rate: 10}]", `rate: rate "10": it has no unit`},
		{"owners: [{name: a, rate: 1kbit}]", `rate "1kbit" must be from 100kbit to 1Tbit`},
		{"owners: [{name: a, count: 0}]", `count "0" must be a number from 1 to 1024`},
		{"owners: [{name: a, longest: 5}]", `longest "5" must be a time from 1m to 5 years, like 24h or 3d`},
		{"paths: [{remote: 10.0.0.0/8, capacity: 1Gbit}]", `a path has no name`},
		{"paths: [{name: p, capacity: 1Gbit}]", `path "p" has no remote`},
		{"paths: [{name: p, remote: 10.0.0.0/8}]", `path "p" has no capacity; say what can be reserved on it`},
		{"paths: [{name: p, remote: 10.0.0.1/8, capacity: 1Gbit}]", `write 10.0.0.0/8`},
		{"paths: [{name: p, remote: 10.0.0.0/8, capacity: 1Gbit}, {name: q, remote: [10.0.0.0/8], capacity: 1Gbit}]", `10.0.0.0/8 is on path "p" and on path "q"`},
		{"probe_port: 70000", `probe_port "70000" must be a number from 1 to 65535`},
		{"band: 5", `band: time "5": not a time`},
		{"band: 2s", `band "2s" must be from 100µs to 1s`},
	} {
		_, err := Parse("t.yaml", []byte("rules: [{remote: 10.0.0.0/8}]\nreservations: {"+c.in+"}"))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "t.yaml:2:") {
			t.Errorf("%s: %v\nwant t.yaml:2: %s", c.in, err, c.want)
		}
	}
}
