// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/loader/policy"
)

const (
	// maxRulePorts bounds what one rule takes of the kernel's table (65,536 entries for all rules together).
	maxRulePorts = 4096
	// minWindow and maxWindow are what the kernel makes sense of: below, no full segment fits; above, window scaling ends.
	minWindow = 16 << 10
	maxWindow = 1 << 30
)

func (d *decoder) rule(n ast.Node, c *Config) {
	r := Rule{ID: uint32(len(c.Rules) + 1), Line: d.problem(n, "").Line, Priority: PriorityOff, Splice: SpliceAuto, Weight: policy.DefaultWeight}
	nodes := ruleNodes{rule: n}
	before := len(d.problems)
	var ports []PortRange
	var weight ast.Node
	d.mapping(n, "a rule", ruleKeys, fields{
		"name": func(n ast.Node) {
			d.text(n, "name", func(s string) {
				if !plainName.MatchString(s) {
					d.failf(n, "rule name %q must be up to 64 letters, digits and . _ : / , -", s)
				}
				r.Name = s
			})
		},
		"remote": func(n ast.Node) {
			nodes.remote = n
			d.text(n, "remote", func(s string) {
				var err error
				if r.Remote, err = parsePrefix(s); err != nil {
					d.failf(n, "remote %v", err)
				}
			})
		},
		"ports":      func(n ast.Node) { ports = d.ports(n, &r) },
		"congestion": func(n ast.Node) { d.congestion(n, &r) },
		"window":     func(n ast.Node) { d.window(n, &r) },
		"weight":     func(n ast.Node) { weight = n; d.weight(n, &r) },
		"pacing":     func(n ast.Node) { d.pacing(n, &r) },
		"priority": func(n ast.Node) {
			d.word(n, "priority", &r.Priority, PriorityOff, PriorityRetransmit, PrioritySlowStart)
		},
		"dedup":           func(n ast.Node) { d.dedup(n, &r, &nodes) },
		"splice":          func(n ast.Node) { d.word(n, "splice", &r.Splice, SpliceAuto, SpliceOff, SpliceForce) },
		"exclude_cgroups": func(n ast.Node) { d.texts(n, "exclude_cgroups", &r.ExcludeCgroups) },
		"exclude_users":   func(n ast.Node) { d.texts(n, "exclude_users", &r.ExcludeUsers) },
	})
	if !r.Remote.IsValid() && len(d.problems) == before {
		d.failf(nodes.rule, "a rule has no remote; give the other end's prefix, like remote: 203.0.113.0/24 (anything: 0.0.0.0/0)")
	}
	if weight != nil && r.Window != policy.WindowReserved {
		d.failf(weight, "weight is of flows that share a reserved path; add window: reserved, or remove it")
	}
	if r.Name == "" {
		r.Name = defaultName(r, ports)
	}
	if r.Peer != "" && r.History == "" {
		r.History = r.Name
	}
	c.Rules = append(c.Rules, r)
	d.rules = append(d.rules, nodes)
}

func (d *decoder) ports(n ast.Node, r *Rule) []PortRange {
	var ranges []PortRange
	one := func(n ast.Node) {
		d.text(n, "each of ports", func(s string) {
			p, err := parsePortRange(s)
			if err != nil {
				d.failf(n, "%v", err)
				return
			}
			ranges = append(ranges, p)
		})
	}
	if _, ok := scalar(n); ok {
		one(n)
	} else {
		d.list(n, "ports", one)
		if len(ranges) == 0 && len(d.problems) == 0 {
			d.failf(n, "ports is empty; leave the key out to mean every port")
		}
	}
	total := 0
	for _, p := range ranges {
		total += int(p.Last) - int(p.First) + 1
	}
	if total > maxRulePorts {
		d.failf(n, "the rule names %d ports, the most is %d; leave ports out to mean every port", total, maxRulePorts)
		return nil
	}
	for _, p := range ranges {
		for v := int(p.First); v <= int(p.Last); v++ {
			r.Ports = append(r.Ports, uint16(v))
		}
	}
	slices.Sort(r.Ports)
	r.Ports = slices.Compact(r.Ports)
	return ranges
}

func (d *decoder) window(n ast.Node, r *Rule) {
	s, _ := scalar(n)
	switch s {
	case "auto":
		r.Window = policy.WindowAuto
	case "reserved":
		r.Window = policy.WindowReserved
	default:
		d.size(n, "window", minWindow, maxWindow, func(v int64) { r.Window, r.WindowBytes = policy.WindowFixed, uint32(v) })
	}
}

func (d *decoder) weight(n ast.Node, r *Rule) {
	d.number(n, "weight", policy.DefaultWeight, policy.MaxWeight, func(v uint64) { r.Weight = uint8(v) })
}

func (d *decoder) pacing(n ast.Node, r *Rule) {
	d.text(n, "pacing", func(s string) {
		if s == "off" {
			return
		}
		v, err := units.Rate(s)
		switch {
		case err != nil:
			d.failf(n, "pacing %v", err)
		case v < 8000:
			d.failf(n, "pacing %q is below 8kbit; write it like 50Mbit, or off", s)
		case v/8 > policy.MaxPacingBps:
			d.failf(n, "pacing %q is above the 34Gbit that the kernel can pace; write off", s)
		}
		r.PacingBitps = v
	})
}

func (d *decoder) dedup(n ast.Node, r *Rule, nodes *ruleNodes) {
	nodes.peer = n
	before := len(d.problems)
	d.mapping(n, "dedup", dedupKeys, d.codecFields(&nodes.codec, fields{
		"peer": func(n ast.Node) {
			nodes.peer = n
			d.text(n, "peer", func(s string) { r.Peer = s })
		},
		"history": func(n ast.Node) {
			d.text(n, "history", func(s string) {
				if !plainName.MatchString(s) {
					d.failf(n, "history %q must be none or a name of up to 64 letters, digits and . _ : / , -", s)
				}
				r.History = s
			})
		},
	}))
	if r.Peer == "" && len(d.problems) == before {
		d.failf(n, "dedup has no peer; name one of peers, like dedup: {peer: busan}")
	}
}

// defaultName is made of what the rule matches, so that it survives a change of the order of the rules: the name is also
// the default history group.
func defaultName(r Rule, ports []PortRange) string {
	var parts []string
	for _, p := range ports {
		if p.First == p.Last {
			parts = append(parts, fmt.Sprint(p.First))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", p.First, p.Last))
	}
	name := r.Remote.String()
	if len(parts) > 0 {
		name += ":" + strings.Join(parts, ",")
	}
	if len(name) > 64 {
		h := fnv.New32a()
		h.Write([]byte(name))
		name = fmt.Sprintf("%s-%08x", name[:55], h.Sum32())
	}
	return name
}
