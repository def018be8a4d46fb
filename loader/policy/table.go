// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Class is one entry of the kernel's prefix trie.
type Class struct {
	ID     uint32 // from 1
	Prefix netip.Prefix
}

// Entry is one entry of the kernel's (class, port) table.
type Entry struct {
	Class uint32
	Port  uint16 // 0: any port that has no entry of its own
	Rule  Rule
}

// Table is a checked set of rules, expanded. It is not changed once built, so it may be read by many at once.
type Table struct {
	rules   []Rule
	classes map[netip.Prefix]uint32
	last    uint32           // the highest class ever given
	entries map[entryKey]int // index into rules
}

type entryKey struct {
	class uint32
	port  uint16
}

// Build checks and expands the rules.
func Build(rules []Rule) (*Table, error) { return BuildAfter(nil, rules) }

// BuildAfter is Build for a reload: no class of previous is used again, so that both can be in the kernel's tables side by
// side, and a class keeps its meaning from a flow's first look-up to its second.
func BuildAfter(previous *Table, rules []Rule) (*Table, error) {
	t := &Table{classes: map[netip.Prefix]uint32{}, entries: map[entryKey]int{}}
	var errs []error
	for _, r := range rules {
		if err := check(r); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Remote = normal(r.Remote)
		r.Ports = slices.Compact(slices.Sorted(slices.Values(r.Ports)))
		t.rules = append(t.rules, r)
	}
	errs = append(errs, equalRules(t.rules)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := t.number(previous); err != nil {
		return nil, err
	}
	return t, t.expand()
}

// equalRules reports each pair of rules between which nothing decides: the same prefix, and a port in common or none in
// either.
func equalRules(rules []Rule) []error {
	type key struct {
		prefix netip.Prefix
		port   uint16
	}
	var errs []error
	first := map[key]Rule{}
	for _, r := range rules {
		ports := r.Ports
		if len(ports) == 0 {
			ports = []uint16{0}
		}
		for _, p := range ports {
			k := key{r.Remote, p}
			o, ok := first[k]
			if !ok {
				first[k] = r
				continue
			}
			what := "without ports"
			if p != 0 {
				what = fmt.Sprintf("port %d", p)
			}
			errs = append(errs, fmt.Errorf("%s and %s are equal: both are for %s, %s", o.where(), r.where(), r.Remote, what))
			break
		}
	}
	return errs
}

// number gives each prefix its class.
func (t *Table) number(previous *Table) error {
	prefixes := map[netip.Prefix]bool{}
	for _, r := range t.rules {
		prefixes[r.Remote] = true
	}
	// The trie has one address space: ::/0 would cover ::ffff:a.b.c.d, which is IPv4. A class of IPv4's
	// own, with no entries unless rules give it some, shields it.
	if !prefixes[all4] && slices.ContainsFunc(slices.Collect(maps.Keys(prefixes)), coversMapped) {
		prefixes[all4] = true
	}
	if len(prefixes) > MaxClasses {
		return fmt.Errorf("the rules have %d different prefixes, the kernel's table holds %d; join some", len(prefixes), MaxClasses)
	}
	if previous != nil {
		t.last = previous.last
	}
	for _, p := range slices.SortedFunc(maps.Keys(prefixes), comparePrefix) {
		t.last++
		t.classes[p] = t.last
	}
	return nil
}

// expand gives each class an entry for every port that a rule of its prefix or a wider one names, and one for the rest.
func (t *Table) expand() error {
	own := map[netip.Prefix][]int{}
	for i, r := range t.rules {
		own[r.Remote] = append(own[r.Remote], i)
	}
	for p, class := range t.classes {
		for bits := 0; bits <= p.Bits(); bits++ { // from the widest: a longer prefix replaces what a wider one gave
			for _, i := range own[netip.PrefixFrom(p.Addr(), bits).Masked()] {
				for _, port := range t.rules[i].Ports {
					t.entries[entryKey{class, port}] = i
				}
				if len(t.rules[i].Ports) == 0 {
					t.entries[entryKey{class, 0}] = i
				}
			}
		}
	}
	if len(t.entries) > MaxEntries {
		return fmt.Errorf("the rules need %d entries of prefix and port, the kernel's table holds %d; name fewer ports", len(t.entries), MaxEntries)
	}
	return nil
}

// Lookup returns the rule of a connection with this other end and service port, as the kernel finds it.
func (t *Table) Lookup(remote netip.Addr, port uint16) (Rule, bool) {
	class, ok := t.class(remote.Unmap().WithZone(""))
	if !ok {
		return Rule{}, false
	}
	i, ok := t.entries[entryKey{class, port}]
	if !ok {
		i, ok = t.entries[entryKey{class, 0}]
	}
	if !ok {
		return Rule{}, false
	}
	return t.rules[i], true
}

// class returns the class of the longest prefix that holds the address.
func (t *Table) class(a netip.Addr) (uint32, bool) {
	for bits := a.BitLen(); bits >= 0 && a.IsValid(); bits-- {
		if id, ok := t.classes[netip.PrefixFrom(a, bits).Masked()]; ok {
			return id, true
		}
	}
	return 0, false
}

// Rules returns the rules, checked and normalised, in the order of the configuration.
func (t *Table) Rules() []Rule { return slices.Clone(t.rules) }

// Rule returns the rule of an id.
func (t *Table) Rule(id uint32) (Rule, bool) {
	i := slices.IndexFunc(t.rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return t.rules[i], true
}

// Classes returns what goes into tl_class, ordered by prefix.
func (t *Table) Classes() []Class {
	out := make([]Class, 0, len(t.classes))
	for p, id := range t.classes {
		out = append(out, Class{ID: id, Prefix: p})
	}
	slices.SortFunc(out, func(a, b Class) int { return comparePrefix(a.Prefix, b.Prefix) })
	return out
}

// Entries returns what goes into tl_rule, ordered by class and port.
func (t *Table) Entries() []Entry {
	out := make([]Entry, 0, len(t.entries))
	for k, i := range t.entries {
		out = append(out, Entry{Class: k.class, Port: k.port, Rule: t.rules[i]})
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// all4 is every IPv4 address.
var all4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// coversMapped says whether an IPv6 prefix holds ::ffff:0:0/96, where the kernel's tables keep IPv4.
func coversMapped(p netip.Prefix) bool {
	return p.Bits() <= mapped.Bits() && p.Contains(mapped.Addr())
}

// comparePrefix orders IPv4 before IPv6, then by address, then the wider before the longer.
func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
