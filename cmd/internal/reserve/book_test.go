// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	alice = Caller{Name: "alice", IDs: []string{"alice", "1001"}, Groups: []string{"users", "100"}}
	olga  = Caller{Name: "olga", IDs: []string{"olga", "1002"}, Groups: []string{"noc", "200"}}
	eve   = Caller{Name: "eve", IDs: []string{"eve", "1003"}}
)

// house is a policy with all there is.
func house() Policy {
	return Policy{
		Owners: []Owner{
			{Name: "astro", Role: User, Users: []string{"alice"}, RateBps: 100e6, Count: 3, Longest: 24 * time.Hour},
			{Name: "noc", Role: Operator, Groups: []string{"200"}},
			{Name: "bio", Role: User, Users: []string{"bob"}},
		},
		Paths: []Path{{Name: "kreonet", Remote: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, CapacityBps: 125e6}},
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		q    Request
		by   Caller
		why  Why
		text string
	}{
		{"nothing", Request{}, root, Malformed, "remote is missing"},
		{"no rate", Request{Remote: []string{"10.0.0.0/8"}, For: "1h"}, root, Malformed, "rate is missing"},
		{"no end", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit"}, root, Malformed, "neither end nor for is given"},
		{"both ends", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h", End: "+1h"}, root, Malformed, "both given"},
		{"prefix", Request{Remote: []string{"10.0.0.1/8"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "write 10.0.0.0/8"},
		{"loopback", Request{Remote: []string{"127.0.0.1"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "loopback, link-local or multicast"},
		{"mapped", Request{Remote: []string{"::ffff:10.0.0.1"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "write it as IPv4"},
		{"twice", Request{Remote: []string{"10.0.0.0/8", "10.1.0.0/16"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "10.0.0.0/8 and 10.1.0.0/16 overlap"},
		{"unit", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1000", For: "1h"}, root, Malformed, "it has no unit"},
		{"low", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Mbit", Share: "1%", For: "1h"}, root, Malformed, "the least is 100 kbit/s"},
		{"share", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Mbit", Share: "0", For: "1h"}, root, Malformed, "share \"0\" must be"},
		{"backwards", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", Start: "+2h", End: "+1h"}, root, Malformed, "is not after the start"},
		{"far", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", End: "2099-01-01T00:00:00Z"}, root, Malformed, "more than five years ahead"},
		{"past", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", Start: "2026-11-30T10:00:00Z", For: "1h"}, root, Expired, "has passed: it is 2026-12-01T12:00:00Z now"},
		{"rtt", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h", RTT: "1h"}, root, Malformed, "rtt \"1h\" must be"},
		{"probe", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h", Probe: []string{"11.0.0.1:80"}}, root, Malformed, "lies in no end point"},
		{"probe port", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h", Probe: []string{"10.0.0.1"}}, root, Malformed, "not an address and a port"},
		{"id", Request{ID: "a/b", Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "id \"a/b\" must be"},
		{"long", Request{Owner: strings.Repeat("x", 200), Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h"}, root, Malformed, "200 bytes, the most is 128"},
		{"many", Request{Remote: make([]string, 65), Rate: "1Gbit", For: "1h"}, root, Malformed, "more than 64 end points"},
		{"stranger", plain("10.0.0.0/8"), eve, Unauthorised, "eve may not make reservations: it acts for no owner; use sudo"},
		{"another's", Request{Owner: "bio", Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h"}, alice, Unauthorised, "alice may not make a reservation of owner bio: it acts for astro"},
		{"undeclared", Request{Owner: "nobody", Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "1h"}, root, Unauthorised, "owner \"nobody\" is not declared; declared are astro, noc, bio"},
		{"quota rate", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Gbit", For: "2h"}, alice, OverQuota, "owner astro may reserve 800 Mbit/s at any one time, and has 80 Mbit/s at 2026-12-01T13:00:00Z; ask for 720 Mbit/s at most"},
		{"quota time", Request{Remote: []string{"10.0.0.0/8"}, Rate: "1Mbit", For: "2d"}, alice, OverQuota, "would last 2d00h; owner astro may reserve for 24h00m at most"},
		{"capacity", Request{Remote: []string{"203.0.113.9"}, Rate: "400Mbit", For: "3h"}, olga, Overlapping,
			"path kreonet carries 1 Gbit/s, of which 700 Mbit/s is reserved at 2026-12-01T13:00:00Z (big); ask for 300 Mbit/s at most"},
		{"more than the path", Request{Remote: []string{"203.0.113.9"}, Rate: "2Gbit", Start: "+20h", For: "1h"}, olga, Overlapping, "path kreonet carries 1 Gbit/s, which is less than 2 Gbit/s"},
		{"undeclared path", Request{Remote: []string{"192.0.2.7"}, Rate: "1Mbit", For: "3h"}, olga, Overlapping, "it overlaps reservation lone of astro, 80 Mbit/s"},
		{"taken id", Request{ID: "big", Remote: []string{"198.51.100.1"}, Rate: "1Mbit", For: "3h"}, root, Malformed, "there is a reservation big already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &memoryStore{}
			b := newBook(t, newClock(), s, house())
			mustAdd(t, b, Request{ID: "big", Owner: "noc", Remote: []string{"203.0.113.0/24"}, Rate: "700Mbit", Start: "+1h", For: "2h"}, root)
			mustAdd(t, b, Request{ID: "lone", Remote: []string{"192.0.2.0/24"}, Rate: "80Mbit", Start: "+1h", For: "2h"}, alice)
			saves := s.saves
			r, err := b.Add(c.q, c.by)
			if err == nil {
				t.Fatalf("granted: %+v", r)
			}
			if WhyOf(err) != c.why || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v\nwant %s: %s", WhyOf(err), err, c.why, c.text)
			}
			if len(b.List()) != 2 || s.saves != saves {
				t.Errorf("a refusal left something: %+v", b.List())
			}
		})
	}
}

// What fits beside the others is granted: on a declared path up to its capacity, and one after the other anywhere.
func TestGranted(t *testing.T) {
	b := newBook(t, newClock(), &memoryStore{}, house())
	for i, q := range []Request{
		{Remote: []string{"203.0.113.0/24"}, Rate: "600Mbit", For: "2h"},
		{Remote: []string{"203.0.113.0/24"}, Rate: "400Mbit", For: "2h"},
		{Remote: []string{"203.0.113.0/24"}, Rate: "1Gbit", Start: "+2h", For: "2h"},
		{Remote: []string{"198.51.100.0/24"}, Rate: "9Gbit", For: "1h"},
		{Remote: []string{"198.51.100.7", "2001:db8::/32"}, Rate: "9Gbit", Start: "+1h", For: "1h"},
	} {
		r := mustAdd(t, b, q, olga)
		if r.Owner != "noc" || r.MadeBy != "olga" || r.ID != fmt.Sprintf("r%d", i+1) {
			t.Errorf("%+v", r)
		}
	}
}

func TestQuotaCounts(t *testing.T) {
	b := newBook(t, newClock(), &memoryStore{}, house())
	for i := range 3 {
		mustAdd(t, b, Request{Remote: []string{fmt.Sprintf("10.%d.0.0/16", i)}, Rate: "1Mbit", For: "1h"}, alice)
	}
	fourth := Request{Remote: []string{"10.9.0.0/16"}, Rate: "1Mbit", For: "1h"}
	if _, err := b.Add(fourth, alice); WhyOf(err) != OverQuota || !strings.Contains(err.Error(), "has 3 reservations, and may have 3") {
		t.Errorf("%v", err)
	}
	if _, err := b.End("r1", alice); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(fourth, alice); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

func TestChangeAndEnd(t *testing.T) {
	c, s := newClock(), &memoryStore{}
	b := newBook(t, c, s, house())
	r := mustAdd(t, b, Request{Remote: []string{"203.0.113.0/24"}, Rate: "600Mbit", For: "2h", RTT: "100ms"}, alice)
	for _, by := range []Caller{eve, {Name: "bob", IDs: []string{"bob"}}} {
		if _, err := b.Change(r.ID, Request{Rate: "1Mbit"}, by); WhyOf(err) != Unauthorised {
			t.Errorf("%s: %v", by.Name, err)
		}
		if _, err := b.End(r.ID, by); WhyOf(err) != Unauthorised {
			t.Errorf("%s: %v", by.Name, err)
		}
	}
	got, err := b.Change(r.ID, Request{Rate: "700Mbit", Start: "+1h"}, olga)
	if err != nil || got.RateBps != 87.5e6 || got.End.Sub(got.Start) != 2*time.Hour || got.Start.Sub(c.Wall()) != time.Hour || got.State != Pending {
		t.Errorf("%+v, %v", got, err)
	}
	if got.EndPoints[0].RTT() != 100*time.Millisecond {
		t.Errorf("what was known of the path is lost: %+v", got.EndPoints)
	}
	if _, err := b.Change(r.ID, Request{Rate: "2Gbit"}, root); WhyOf(err) != OverQuota {
		t.Errorf("%v", err)
	}
	if now, _ := b.Get(r.ID); now.RateBps != 87.5e6 {
		t.Errorf("a refused change changed %+v", now)
	}
	if got, err = b.End(r.ID, alice); err != nil || got.State != Ended || got.EndedBy != "alice" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := b.Change(r.ID, Request{Rate: "1Mbit"}, alice); WhyOf(err) != Expired {
		t.Errorf("%v", err)
	}
	if _, err := b.End("r99", alice); WhyOf(err) != Unknown {
		t.Errorf("%v", err)
	}
}

// What cannot be written down is not granted.
func TestFullDisk(t *testing.T) {
	s := &memoryStore{}
	b := newBook(t, newClock(), s, Policy{})
	r := mustAdd(t, b, plain("10.0.0.0/8"), root)
	s.fail = errDisk
	if _, err := b.Add(plain("11.0.0.0/8"), root); err == nil || !strings.Contains(err.Error(), "no space left") || WhyOf(err) != "" {
		t.Errorf("%v", err)
	}
	if _, err := b.End(r.ID, root); err == nil {
		t.Error("ended, and after a restart it would not be")
	}
	if all := b.List(); len(all) != 1 || all[0].State != Active {
		t.Errorf("%+v", all)
	}
}
