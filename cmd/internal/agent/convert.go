// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/proxy"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// names gives peers and rules their numbers: in the order of the file at first, and the same for the same name after a
// reload, so that live flows and counters keep meaning what they meant.
type names struct{ peers, rules numbering }

type numbering map[string]uint32

func (n *numbering) of(name string) uint32 {
	if *n == nil {
		*n = numbering{}
	}
	id, ok := (*n)[name]
	if !ok {
		id = uint32(len(*n) + 1)
		(*n)[name] = id
	}
	return id
}

// build makes the policy of a configuration, whose rules may choose from candidates.
func (a *agent) build(c *config.Config, candidates []hostcheck.Candidate) (*policy.Table, error) {
	ids := map[string]uint32{}
	for _, p := range c.Peers {
		ids[p.Name] = a.names.peers.of(p.Name)
	}
	rules, prior := c.PolicyRules(ids), priorFor(c, candidates)
	for i := range rules {
		rules[i].ID = a.names.rules.of(rules[i].Name)
		if rules[i].Auto {
			rules[i].Congestion = prior
		}
	}
	t, err := policy.Build(rules)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return t, nil
}

func (a *agent) enginePeers(c *config.Config) []proxy.Peer {
	peers := make([]proxy.Peer, len(c.Peers))
	for i, p := range c.Peers {
		peers[i] = proxy.Peer{ID: a.names.peers.of(p.Name), Name: p.Name, Address: p.Address, Key: p.Key, Codec: p.Codec}
		for _, allow := range p.Allow {
			peers[i].Allow = append(peers[i].Allow, proxy.Allow{Prefix: allow.Prefix, Ports: ports(allow.Ports)})
		}
	}
	return peers
}

// ports writes ranges out; every port is none.
func ports(ranges []config.PortRange) []uint16 {
	var all []uint16
	for _, r := range ranges {
		if r.First == 1 && r.Last == 65535 {
			return nil
		}
		for p := int(r.First); p <= int(r.Last); p++ {
			all = append(all, uint16(p))
		}
	}
	return all
}

func engineRule(r policy.Rule) proxy.Rule {
	return proxy.Rule{ID: r.ID, Name: r.Name, PeerID: r.PeerID, History: r.History, Codec: codecOf(r), Congestion: r.Congestion,
		PacingBps: r.PacingBps, WindowBytes: r.WindowBytes}
}

// codecOf is the rule's codec, whose words the configuration has checked; a rule that says nothing has the default.
func codecOf(r policy.Rule) codec.Spec {
	kind, _ := codec.ParseKind(r.Codec)
	stage, _ := codec.ParseStage(r.Stage)
	return codec.Spec{Kind: kind, Stage: stage, SegmentBytes: r.SegmentBytes}
}

func engineRules(t *policy.Table) []proxy.Rule {
	var rules []proxy.Rule
	for _, r := range t.Rules() {
		rules = append(rules, engineRule(r))
	}
	return rules
}

func ruleFor(t *policy.Table) proxy.RuleFor {
	return func(remote netip.Addr, port uint16) (proxy.Rule, bool) {
		r, ok := t.Lookup(remote, port)
		return engineRule(r), ok
	}
}

// kernel is the loader as the engine sees it: neither knows the other.
type kernel struct{ *loader.Loader }

func (k kernel) TakeOriginal(client netip.AddrPort) (proxy.Original, bool) {
	o, ok := k.Loader.TakeOriginal(client)
	return proxy.Original{Destination: o.Destination, Source: o.Source, RuleID: o.RuleID}, ok
}
