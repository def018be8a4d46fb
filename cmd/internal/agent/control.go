// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
	"github.com/trunkline/trunkline/loader/policy"
)

// The agent is the control socket's backend.
var _ control.Backend = (*agent)(nil)

// Reload takes the configuration as the file now has it. If it cannot be used, nothing changes.
func (a *agent) Reload() (control.Reloaded, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending {
		return control.Reloaded{}, errors.New("the agent is ending and steers no more; start it again")
	}
	next, err := config.Load(a.config.Path)
	if err != nil {
		return control.Reloaded{}, err
	}
	warnings := fixed(a.config, next)
	candidates := candidatesFor(next)
	table, err := a.build(next, candidates)
	if err != nil {
		return control.Reloaded{}, err
	}
	if err := a.switchTo(next, table, candidates, a.resolvePeers(context.Background(), next)); err != nil {
		return control.Reloaded{}, err
	}
	if err := a.steer(); err != nil {
		return control.Reloaded{}, err
	}
	a.warn(next, candidates)
	for _, w := range next.Warnings {
		warnings = append(warnings, w.Error())
	}
	a.draining, a.loaded = false, time.Now()
	a.log.Info("reloaded", "rules", len(next.Rules), "peers", len(next.Peers), "warnings", len(warnings))
	return control.Reloaded{Rules: len(next.Rules), Peers: len(next.Peers), Warnings: warnings}, nil
}

// switchTo puts a configuration in force, whole or not at all; a.mu is held.
func (a *agent) switchTo(next *config.Config, table *policy.Table, candidates []hostcheck.Candidate, addrs []netip.AddrPort) error {
	a.loader.SetCandidates(offered(next, candidates))
	// The kernel first: a peer that the engine does not know yet counts as down there, so that nothing is steered to it.
	if err := a.loader.Apply(table.Rules(), addrs); err != nil {
		a.loader.SetCandidates(offered(a.config, a.auto.candidates))
		return err
	}
	if err := a.engine.Reconfigure(a.enginePeers(next), engineRules(table), ruleFor(table)); err != nil {
		a.loader.SetCandidates(offered(a.config, a.auto.candidates))
		return errors.Join(err, a.loader.Apply(a.table.Rules(), a.addrs))
	}
	a.config, a.table, a.addrs, a.auto.candidates = next, table, addrs, candidates
	a.auto.chooser.Configure(chooserOptions(next, candidates))
	a.granted.book.Configure(next.Reservations.Policy)
	a.granted.systems.changed()
	a.remember(next)
	a.putChoices()
	return nil
}

// fixed keeps in next what only a restart can change, and says so.
func fixed(old, next *config.Config) []string {
	warnings := []string{}
	keep := func(key string, same bool) {
		if !same {
			warnings = append(warnings, key+" is other than before; it takes a restart of the agent to change it")
		}
	}
	keep("instance", old.Instance == next.Instance)
	keep("cgroup", old.Cgroup == next.Cgroup)
	keep("interfaces", slices.Equal(old.Interfaces, next.Interfaces))
	keep("listen", old.Listen == next.Listen)
	keep("state_dir", old.StateDir == next.StateDir)
	keep("run_dir", old.RunDir == next.RunDir)
	keep("key", old.Key == next.Key)
	keep("bpffs", old.BPFFS == next.BPFFS)
	keep("group", old.Group == next.Group)
	keep("dscp", old.DSCP == next.DSCP)
	keep("mark_bit", old.MarkBit == next.MarkBit)
	keep("history", old.History == next.History)
	held := *old
	held.Peers, held.Rules, held.Auto, held.Warnings = next.Peers, next.Rules, next.Auto, next.Warnings
	held.Reservations = next.Reservations
	*next = held
	return warnings
}

// Drain steers no more. Flows in the engine go on.
func (a *agent) Drain() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
	return a.loader.Drain()
}

// Explain says which of the rules in force applies.
func (a *agent) Explain(remote netip.AddrPort) (control.Explanation, error) {
	a.mu.Lock()
	t := a.table
	a.mu.Unlock()
	e, r := explain(t, remote)
	if r.Auto {
		e.Auto = a.explainAuto(r, remote.Addr())
	}
	explainReserved(a.loader, &e, r)
	return e, nil
}
