// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/proxy/wire"
)

// Status sums the agent up.
func (a *agent) Status() (control.Status, error) {
	a.mu.Lock()
	c, loaded, table, draining := a.config, a.loaded, a.table, a.draining
	a.mu.Unlock()
	reasons, err := a.reasons()
	if err != nil {
		return control.Status{}, err
	}
	peers, err := a.Peers()
	if err != nil {
		return control.Status{}, err
	}
	features := a.loader.Features()
	s := control.Status{
		Instance: c.Instance, Version: a.o.Version, Protocol: wire.Major, Kernel: a.o.Kernel, PID: os.Getpid(), Started: a.started,
		UptimeSeconds: time.Since(a.started).Seconds(), Config: c.Path, ConfigLoaded: loaded, Cgroup: c.Cgroup,
		Listen: []string{}, Rules: len(c.Rules), ActiveFlows: len(a.engine.Flows()), Features: []control.Feature{},
		Peers: peers, Reasons: reasons, Problems: problems(table, features, peers), Auto: a.autoStatus(),
	}
	usage, _ := a.engine.Histories()
	s.History = historyUsage(usage)
	s.Problems = append(s.Problems, usage.Problems...)
	s.Problems = append(s.Problems, autoProblems(s.Auto)...)
	s.Problems = append(s.Problems, a.reservationProblems()...)
	if c.Listen.IsValid() {
		s.Listen = append(s.Listen, c.Listen.String())
	}
	for _, f := range features {
		s.Features = append(s.Features, control.Feature(f))
	}
	if w := outside(c, ownCgroup()); w != "" {
		s.Problems = append(s.Problems, w)
	}
	if !a.engine.Alive() {
		s.Problems = append(s.Problems, "the engine does not take connections, so they go direct; see that the host is not starved of CPU or descriptors")
	}
	s.Health = control.Healthy
	switch {
	case draining:
		s.Health = control.Draining
	case len(s.Problems) > 0:
		s.Health = control.Degraded
	}
	return s, nil
}

// problems are what the rules ask for and do not get.
func problems(t *policy.Table, features []loader.Feature, peers []control.Peer) []string {
	needs := needed(t)
	found := []string{}
	for _, f := range features {
		if !f.On && needs[f.Name] {
			found = append(found, fmt.Sprintf("%s is off: %s; %s", f.Name, f.Detail, f.Remedy))
		}
	}
	used := map[string]bool{}
	for _, r := range t.Rules() {
		used[r.PeerName] = true
	}
	for _, p := range peers {
		// One that only connects to us may stay away as long as it likes.
		if !p.Up && (p.Address != "" || used[p.Name]) {
			found = append(found, fmt.Sprintf("peer %s is down (%s %s), its connections go direct; see trunkline peers", p.Name, p.Reason, p.Detail))
		}
	}
	return found
}

// needed gives the features that the rules cannot do without.
func needed(t *policy.Table) map[string]bool {
	rules := t.Rules()
	n := map[string]bool{"rules": len(rules) > 0}
	for _, r := range rules {
		n["telemetry"] = n["telemetry"] || r.Auto
		n["marks"] = n["marks"] || r.Priority != bpf.PriorityOff
		n["window"] = n["window"] || r.WindowBytes > 0 || r.Mode() == policy.WindowReserved
		_, ours := cc.Lookup(r.Congestion)
		n["struct-ops"] = n["struct-ops"] || ours
		n["steering-ipv4"] = n["steering-ipv4"] || r.PeerID != 0 && r.Remote.Addr().Is4()
		n["steering-ipv6"] = n["steering-ipv6"] || r.PeerID != 0 && r.Remote.Addr().Is6()
	}
	return n
}

// reasons joins what the kernel side and the engine have counted, the most frequent first.
func (a *agent) reasons() ([]control.Reason, error) {
	counts, err := a.loader.ReasonCounts()
	if err != nil {
		return nil, err
	}
	for code, n := range a.engine.ReasonCounts() {
		counts[code] += n
	}
	found := []control.Reason{}
	for code, n := range counts {
		info, ok := reason.Lookup(code)
		if !ok || n == 0 {
			continue
		}
		found = append(found, control.Reason{Code: uint32(code), Name: info.Name, Intended: info.Intended, Count: n,
			Meaning: info.Meaning, Action: info.Action})
	}
	slices.SortFunc(found, func(x, y control.Reason) int {
		if x.Count != y.Count {
			return int(y.Count) - int(x.Count)
		}
		return int(x.Code) - int(y.Code)
	})
	return found, nil
}
