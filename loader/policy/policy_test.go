// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/bpf"
)

func rule(id uint32, remote string, ports ...uint16) Rule {
	return Rule{ID: id, Name: fmt.Sprintf("r%d", id), Line: int(id) * 10, Remote: netip.MustParsePrefix(remote), Ports: ports}
}

func mustBuild(t *testing.T, rules ...Rule) *Table {
	t.Helper()
	table, err := Build(rules)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestLookup(t *testing.T) {
	table := mustBuild(t,
		rule(1, "0.0.0.0/0"),
		rule(2, "10.0.0.0/8", 80, 443),
		rule(3, "10.1.0.0/16"),
		rule(4, "10.1.2.0/24", 5432),
		rule(5, "10.1.2.0/24", 80),
		rule(6, "2001:db8::/32", 80),
		rule(7, "::/0", 22),
	)
	for _, c := range []struct {
		remote string
		port   uint16
		want   uint32
	}{
		{"192.0.2.1", 80, 1},
		{"10.9.9.9", 80, 2},
		{"10.9.9.9", 81, 1},
		{"10.1.9.9", 80, 2}, // a rule that names the port wins over a longer prefix without ports
		{"10.1.9.9", 81, 3},
		{"10.1.2.3", 80, 5},
		{"10.1.2.3", 443, 2},
		{"10.1.2.3", 5432, 4},
		{"10.1.2.3", 1, 3},
		{"::ffff:10.1.2.3", 80, 5},
		{"2001:db8::1", 80, 6},
		{"2001:db8::1", 22, 7},
		{"2001:db8::1", 443, 0},
		{"fe80::1%eth0", 22, 7},
		{"192.0.2.1", 22, 1}, // an IPv6 prefix never covers IPv4
	} {
		got, ok := table.Lookup(netip.MustParseAddr(c.remote), c.port)
		if ok != (c.want != 0) || got.ID != c.want {
			t.Errorf("%s port %d: rule %d, want %d", c.remote, c.port, got.ID, c.want)
		}
	}
	if r, ok := mustBuild(t, rule(1, "::/0")).Lookup(netip.MustParseAddr("192.0.2.1"), 80); ok {
		t.Errorf("::/0 covers IPv4: %v", r)
	}
	if _, ok := table.Lookup(netip.Addr{}, 80); ok {
		t.Error("the invalid address has a rule")
	}
}

func TestBuildRefuses(t *testing.T) {
	long := rule(1, "10.0.0.0/8")
	long.Congestion = "sixteen-letters-"
	fast := rule(1, "10.0.0.0/8")
	fast.PacingBps = 1 << 32
	for _, c := range []struct {
		name  string
		rules []Rule
		want  []string
	}{
		{"same port", []Rule{rule(1, "10.0.0.0/8", 80, 81), rule(2, "10.0.0.0/8", 443, 80)}, []string{"line 10", "line 20", "port 80"}},
		{"both without ports", []Rule{rule(1, "10.0.0.0/8"), rule(2, "10.3.0.0/8")}, []string{"line 10", "line 20", "10.0.0.0/8", "without ports"}},
		{"mapped", []Rule{rule(1, "10.0.0.0/8"), rule(2, "::ffff:10.0.0.0/104")}, []string{"line 10", "line 20"}},
		{"name too long", []Rule{long}, []string{"line 10", "15"}},
		{"pacing too fast", []Rule{fast}, []string{"line 10", "pacing"}},
		{"port 0", []Rule{rule(1, "10.0.0.0/8", 0)}, []string{"line 10", "port 0"}},
	} {
		_, err := Build(c.rules)
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", c.name, err, w)
			}
		}
	}
	for _, ok := range [][]Rule{
		{rule(1, "10.0.0.0/8", 80), rule(2, "10.0.0.0/8")},
		{rule(1, "10.0.0.0/8", 80, 80), rule(2, "10.0.0.0/8", 81)},
		{},
	} {
		if _, err := Build(ok); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
}

func TestBounds(t *testing.T) {
	var many []Rule
	for i := range uint32(MaxClasses + 1) {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		many = append(many, Rule{ID: i + 1, Remote: netip.PrefixFrom(a, 32)})
	}
	if _, err := Build(many); err == nil || !strings.Contains(err.Error(), "16384") {
		t.Errorf("too many prefixes: %v", err)
	}
	many = many[:MaxClasses]
	wide := rule(1<<20, "10.0.0.0/8", 1, 2, 3, 4, 5)
	many[0] = wide
	if _, err := Build(many); err == nil || !strings.Contains(err.Error(), "65536") {
		t.Errorf("too many entries: %v", err)
	}
}

// spec is the rule of DESIGN.md in its own words: among the rules that name the port the longest prefix wins; only if
// there is none, among those without ports.
func spec(rules []Rule, a netip.Addr, port uint16) uint32 {
	var named, any *Rule
	for i := range rules {
		r := &rules[i]
		if !r.Remote.Contains(a) {
			continue
		}
		if len(r.Ports) == 0 && (any == nil || r.Remote.Bits() > any.Remote.Bits()) {
			any = r
		}
		for _, p := range r.Ports {
			if p == port && (named == nil || r.Remote.Bits() > named.Remote.Bits()) {
				named = r
			}
		}
	}
	switch {
	case named != nil:
		return named.ID
	case any != nil:
		return any.ID
	}
	return 0
}

// kernel does what the BPF programs do, on what the loader gives them.
func kernel(t *Table, a netip.Addr, port uint16) uint32 {
	key := bpf.AddrFrom(a).B
	best, class := -1, uint32(0)
	for _, c := range t.Classes() {
		p := bpf.PrefixFrom(c.Prefix)
		if netip.PrefixFrom(netip.AddrFrom16(p.Addr.B), int(p.Prefixlen)).Contains(netip.AddrFrom16(key)) && int(p.Prefixlen) > best {
			best, class = int(p.Prefixlen), c.ID
		}
	}
	found := map[uint16]uint32{}
	for _, e := range t.Entries() {
		if e.Class == class {
			found[e.Port] = e.Rule.ID
		}
	}
	if id, ok := found[port]; ok {
		return id
	}
	return found[0]
}

func randomRules(r *rand.Rand) []Rule {
	var rules []Rule
	for id := range uint32(1 + r.IntN(12)) {
		a, max := netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(2))}), 33
		if r.IntN(3) == 0 {
			a, max = netip.AddrFrom16([16]byte{0: byte(r.IntN(2)), 10: 0xff, 11: 0xff, 12: 10, 15: byte(r.IntN(2))}), 129
		}
		bits := r.IntN(max)
		next := Rule{ID: id + 1, Remote: netip.PrefixFrom(a, bits)}
		for range r.IntN(4) {
			next.Ports = append(next.Ports, uint16(1+r.IntN(4)))
		}
		if _, err := Build(append(rules, next)); err == nil {
			rules = append(rules, next)
		}
	}
	return rules
}

func randomAddr(r *rand.Rand) netip.Addr {
	if r.IntN(3) == 0 {
		return netip.AddrFrom16([16]byte{0: byte(r.IntN(2)), 10: 0xff, 11: byte(0xfe + r.IntN(2)), 12: 10, 15: byte(r.IntN(2))}).Unmap()
	}
	return netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(2))})
}

func TestLookupIsSpecIsKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		rules := randomRules(r)
		table := mustBuild(t, rules...)
		for range 60 {
			a, port := randomAddr(r), uint16(1+r.IntN(5))
			want := spec(table.Rules(), a, port)
			got, _ := table.Lookup(a, port)
			if k := kernel(table, a, port); got.ID != want || k != want {
				t.Fatalf("%v\n%s port %d: Lookup %d, kernel %d, specification %d", rules, a, port, got.ID, k, want)
			}
		}
	}
}

func TestBuildAfterUsesNoClassAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	old := mustBuild(t)
	seen := map[uint32]bool{0: true}
	for range 100 {
		next, err := BuildAfter(old, randomRules(r))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range next.Classes() {
			if seen[c.ID] {
				t.Fatalf("class %d is used again", c.ID)
			}
			seen[c.ID] = true
		}
		old = next
	}
}

func TestExplain(t *testing.T) {
	table := mustBuild(t, rule(1, "0.0.0.0/0"), rule(2, "10.0.0.0/8", 80), rule(3, "10.1.0.0/16", 80), rule(4, "10.1.0.0/16", 443), rule(5, "192.0.2.0/24"))
	steps := table.Explain(netip.MustParseAddr("10.1.2.3"), 80)
	want := []string{
		"=> r3 (line 30): 10.1.0.0/16, ports 80: the longest prefix among the rules that name port 80",
		"   r1 (line 10): 0.0.0.0/0, any port: is for any port, and r3 names port 80",
		"   r2 (line 20): 10.0.0.0/8, ports 80: r3 has the longer prefix, /16 against /8",
		"   r4 (line 40): 10.1.0.0/16, ports 443: does not name port 80",
		"   r5 (line 50): 192.0.2.0/24, any port: 10.1.2.3 is not in its prefix",
	}
	for i, s := range steps {
		if s.String() != want[i] {
			t.Errorf("step %d: %q, want %q", i, s, want[i])
		}
	}
	if s := table.Explain(netip.MustParseAddr("2001:db8::1"), 80); len(s) != 5 || s[0].Applies {
		t.Errorf("IPv6: %v", s)
	}
	if s := table.Explain(netip.MustParseAddr("10.1.2.3"), 1)[0].String(); !strings.Contains(s, "no rule for 10.1.2.3 names port 1") {
		t.Error(s)
	}
}
