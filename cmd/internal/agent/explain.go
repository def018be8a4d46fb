// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// ExplainFile says which rule of a configuration applies to a connection, why, and what it gives, as far as the file tells.
func ExplainFile(c *config.Config, remote netip.AddrPort) (control.Explanation, error) {
	t, err := c.Policy()
	if err != nil {
		return control.Explanation{}, err
	}
	e, r := explain(t, remote)
	if r.Auto {
		e.Auto = explainAutoFile(c, r, remote.Addr())
	}
	return e, nil
}

// explain gives the rule, too; without one that applies it is zero.
func explain(t *policy.Table, remote netip.AddrPort) (control.Explanation, policy.Rule) {
	e := control.Explanation{Remote: remote, Steps: []control.Step{}, Gets: []control.Setting{}}
	for _, s := range t.Explain(remote.Addr(), remote.Port()) {
		e.Steps = append(e.Steps, control.Step{
			Rule: s.Name, Line: s.Line, Match: matches(s.Remote, s.Ports), Applies: s.Applies, Why: s.Why,
		})
	}
	r, ok := t.Lookup(remote.Addr(), remote.Port())
	if !ok {
		return e, policy.Rule{}
	}
	e.Matched, e.RuleID, e.Rule, e.Line = true, r.ID, r.Name, r.Line
	e.Gets = gets(r)
	return e, r
}

// explainReserved says what the reservation in force for an address gives a connection under a rule with window: reserved.
func explainReserved(l *loader.Loader, e *control.Explanation, r policy.Rule) {
	if r.Mode() != policy.WindowReserved {
		return
	}
	value := "none is in force for this address: as with window: auto"
	where, err := l.Where(e.Remote.Addr())
	res, ok := l.ReservedFor(e.Remote.Addr())
	switch {
	case err == nil && where != loader.Routed:
		value = fmt.Sprintf("the address is %s, where nothing is set", where)
	case ok:
		value = fmt.Sprintf("%s: %s x %s, W is %s; flows share it by weight", res.ID, units.FormatRate(float64(res.RateBps)*8),
			units.FormatDuration(res.RTT), units.FormatSize(res.BDPBytes()))
	}
	e.Gets = append(e.Gets, control.Setting{Name: "reservation", Value: value})
}

func matches(remote netip.Prefix, ports []uint16) string {
	switch {
	case len(ports) == 0:
		return remote.String()
	case len(ports) > 4:
		return fmt.Sprintf("%s, %d ports", remote, len(ports))
	}
	s := make([]string, len(ports))
	for i, p := range ports {
		s[i] = fmt.Sprint(p)
	}
	return remote.String() + " port " + strings.Join(s, ",")
}

func gets(r policy.Rule) []control.Setting {
	g := []control.Setting{
		{Name: "congestion", Value: "the kernel's default"},
		{Name: "window", Value: "tuned by the kernel, within the host's maxima"},
		{Name: "pacing", Value: "off"},
		{Name: "priority", Value: "off: nothing is marked"},
		{Name: "dedup", Value: "off: not steered"},
	}
	switch {
	case r.Auto:
		g[0].Value = "auto: chosen for each path"
	case r.Congestion != "":
		g[0].Value = r.Congestion
	}
	switch r.Mode() {
	case policy.WindowFixed:
		g[1].Value = units.FormatSize(r.WindowBytes) + ", fixed"
	case policy.WindowAuto:
		g[1].Value = "auto: tuned by the kernel, with maxima and an initial window for its path"
	case policy.WindowReserved:
		g[1].Value = fmt.Sprintf("reserved: rate x round-trip time of the reservation in force, weight %d; else as auto", r.ShareWeight())
	}
	if r.PacingBps > 0 {
		g[2].Value = "at most " + units.FormatRate(float64(r.PacingBps)*8)
	}
	switch r.Priority {
	case bpf.PriorityRetransmit:
		g[3].Value = "retransmissions are marked"
	case bpf.PrioritySlowStart:
		g[3].Value = "retransmissions and early slow start are marked"
	}
	if r.PeerID == 0 {
		return g
	}
	history := "history " + r.History
	if r.History == "none" {
		history = "without history"
	}
	g[4].Value = fmt.Sprintf("outgoing connections go through peer %s, %s", r.PeerName, history)
	coded := control.Setting{Name: "codec", Value: codecOf(r).String()}
	if s := codecOf(r); s.Kind != codec.Native {
		coded.Value += fmt.Sprintf(", segments of %d bytes", s.Segment())
	}
	if len(r.ExcludeCgroups)+len(r.ExcludeUsers) > 0 {
		g[4].Value += ", except those of " + strings.Join(append(append([]string{}, r.ExcludeUsers...), r.ExcludeCgroups...), ", ")
	}
	return append(g, coded, control.Setting{Name: "splice", Value: r.Splice.String()})
}
