// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Step is what became of one rule while the rule of a connection was looked for.
type Step struct {
	RuleID  uint32       `json:"rule_id"`
	Name    string       `json:"name"`
	Line    int          `json:"line,omitempty"`
	Remote  netip.Prefix `json:"remote"`
	Ports   []uint16     `json:"ports,omitempty"`
	Applies bool         `json:"applies"`
	Why     string       `json:"why"`
}

// String returns the step as one line.
func (s Step) String() string {
	what := "  "
	if s.Applies {
		what = "=>"
	}
	name := s.Name
	if name == "" {
		name = fmt.Sprintf("rule %d", s.RuleID)
	}
	if s.Line > 0 {
		name += fmt.Sprintf(" (line %d)", s.Line)
	}
	return fmt.Sprintf("%s %s: %s%s: %s", what, name, s.Remote, portList(s.Ports), s.Why)
}

// Explain says of every rule whether it applies to a connection with this other end and service port, and why: the one
// that applies first, then those that lost, then those that do not match.
func (t *Table) Explain(remote netip.Addr, port uint16) []Step {
	remote = remote.Unmap().WithZone("")
	won, found := t.Lookup(remote, port)
	steps := make([]Step, 0, len(t.rules))
	rank := map[uint32]int{}
	for _, r := range t.rules {
		s := Step{RuleID: r.ID, Name: r.Name, Line: r.Line, Remote: r.Remote, Ports: r.Ports}
		s.Applies = found && r.ID == won.ID
		s.Why, rank[r.ID] = why(r, won, remote, port)
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(rank[a.RuleID], rank[b.RuleID]) })
	return steps
}

// why tells what decided about a rule, given the one that applies, and its rank in the explanation.
func why(r, won Rule, remote netip.Addr, port uint16) (string, int) {
	names := slices.Contains(r.Ports, port)
	switch {
	case !r.Remote.Contains(remote):
		return fmt.Sprintf("%s is not in its prefix", remote), 3
	case len(r.Ports) > 0 && !names:
		return fmt.Sprintf("does not name port %d", port), 2
	case r.ID == won.ID && names:
		return fmt.Sprintf("the longest prefix among the rules that name port %d", port), 0
	case r.ID == won.ID:
		return fmt.Sprintf("no rule for %s names port %d, and this has the longest prefix of those for any port", remote, port), 0
	case !names && len(won.Ports) > 0:
		return fmt.Sprintf("is for any port, and %s names port %d", won.Label(), port), 1
	}
	return fmt.Sprintf("%s has the longer prefix, /%d against /%d", won.Label(), won.Remote.Bits(), r.Remote.Bits()), 1
}

// Label names the rule for people: by its name, or by its place.
func (r Rule) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("rule %d", r.ID)
}

func portList(ports []uint16) string {
	if len(ports) == 0 {
		return ", any port"
	}
	s := make([]string, len(ports))
	for i, p := range ports {
		s[i] = fmt.Sprint(p)
	}
	return ", ports " + strings.Join(s, ",")
}
