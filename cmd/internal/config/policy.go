// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/policy"
)

var priorities = map[string]bpf.Priority{
	PriorityOff:        bpf.PriorityOff,
	PriorityRetransmit: bpf.PriorityRetransmit,
	PrioritySlowStart:  bpf.PrioritySlowStart,
}

var spliceModes = map[string]policy.SpliceMode{
	SpliceAuto:  policy.SpliceAuto,
	SpliceOff:   policy.SpliceOff,
	SpliceForce: policy.SpliceForce,
}

// PolicyRules gives the rules as the loader takes them; peerIDs are those of the peers by name.
func (c *Config) PolicyRules(peerIDs map[string]uint32) []policy.Rule {
	rules := make([]policy.Rule, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = policy.Rule{
			ID: r.ID, Name: r.Name, Line: r.Line, Remote: r.Remote, Ports: r.Ports,
			Congestion: r.Congestion, Auto: r.Auto, Window: r.Window, Weight: r.Weight, WindowBytes: r.WindowBytes, PacingBps: r.PacingBitps / 8,
			Priority: priorities[r.Priority], PeerID: peerIDs[r.Peer], PeerName: r.Peer, History: r.History, Codec: r.Codec.Kind.String(),
			Stage: r.Codec.Stage.String(), SegmentBytes: r.Codec.SegmentBytes,
			Splice: spliceModes[r.Splice], ExcludeCgroups: r.ExcludeCgroups, ExcludeUsers: r.ExcludeUsers,
		}
	}
	return rules
}

// Policy builds the table that the kernel will hold.
func (c *Config) Policy() (*policy.Table, error) {
	ids := map[string]uint32{}
	for i, p := range c.Peers {
		ids[p.Name] = uint32(i + 1)
	}
	t, err := policy.Build(c.PolicyRules(ids))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return t, nil
}
