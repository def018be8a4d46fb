// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/policy"
)

// chosen gives the choices by path; none if no rule asks for any.
func (a *agent) chosen() map[choice.Path]control.Choice {
	a.mu.Lock()
	c := a.config
	a.mu.Unlock()
	if !c.ChoosesCongestion() {
		return nil
	}
	found := map[choice.Path]control.Choice{}
	for _, d := range a.auto.chooser.Decisions() {
		found[d.Path] = control.Choice{
			Prefix: d.Path.Prefix, Peer: d.Path.Peer, Chosen: d.Chosen, Previous: d.Previous, Why: d.Why, Since: d.Since,
			Updated: d.Updated, Class: string(d.Class), MinRTT: d.RTTMinUs, RateBps: d.RateBps, LossRate: d.LossRate,
			Changes: d.Changes, DryRun: c.Auto.DryRun, Renewals: d.Renewals, History: changesOf(d.History),
		}
	}
	return found
}

func changesOf(changes []choice.Change) []control.Change {
	list := make([]control.Change, len(changes))
	for i, ch := range changes {
		list[i] = control.Change{Old: ch.Old, New: ch.New, Why: ch.Why, At: ch.At}
	}
	return list
}

// of is the choice of a path, nil if there is none.
func of(chosen map[choice.Path]control.Choice, prefix netip.Prefix, peer string) *control.Choice {
	c, ok := chosen[choice.Path{Prefix: prefix, Peer: peer}]
	if !ok {
		return nil
	}
	return &c
}

// autoStatus says how choosing goes; nil if no rule asks for it.
func (a *agent) autoStatus() *control.Auto {
	a.mu.Lock()
	c, candidates := a.config, a.auto.candidates
	a.mu.Unlock()
	if !c.ChoosesCongestion() {
		return nil
	}
	s := describeAuto(c, candidates)
	s.Chosen, s.Changes = a.auto.chooser.Chosen(), a.auto.changes.Load()
	for _, n := range s.Chosen {
		s.Paths += n
	}
	s.StateError = a.auto.memory.problem()
	var err error
	if s.LossDropped, err = a.loader.LossesDropped(); err != nil {
		a.log.Warn("counting loss events", "err", err)
	}
	return &s
}

func describeAuto(c *config.Config, candidates []hostcheck.Candidate) control.Auto {
	s := control.Auto{DryRun: c.Auto.DryRun, Explore: c.Auto.Explore, HoldSeconds: c.Auto.Hold.Seconds(), Candidates: []control.Candidate{},
		Chosen: map[string]int{}}
	for _, one := range candidates {
		s.Candidates = append(s.Candidates, control.Candidate{Name: one.Name, Usable: one.Usable(), Why: one.Why, Remedy: one.Remedy})
	}
	s.Prior = choice.New(chooserOptions(c, candidates)).Prior()
	return s
}

// autoProblems are what keeps anything from being chosen.
func autoProblems(s *control.Auto) []string {
	var found []string
	if s == nil {
		return nil
	}
	if s.Prior == "" {
		found = append(found, "congestion: auto has no candidate that this kernel has, so flows keep its default; see trunkline check")
	}
	if s.StateError != "" {
		found = append(found, "choices are not kept over a restart: "+s.StateError+"; see that the disk has room and the file can be written")
	}
	return found
}

// explainAuto says what auto means for connections of a rule to an address.
func (a *agent) explainAuto(r policy.Rule, remote netip.Addr) *control.AutoExplanation {
	s := a.autoStatus()
	if s == nil {
		return nil
	}
	e := &control.AutoExplanation{Auto: *s, Asked: true, Path: loader.PathOf(r, remote), Choices: []control.Choice{}}
	e.Exempt = a.exempt(remote)
	chosen := a.chosen()
	direct := of(chosen, e.Path, "")
	if direct != nil && e.Exempt == "" {
		e.Choices = append(e.Choices, *direct)
	}
	if e.Exempt == "" && !s.DryRun {
		e.New = s.Prior
		if direct != nil && slices.ContainsFunc(s.Candidates, func(c control.Candidate) bool { return c.Usable && c.Name == direct.Chosen }) {
			e.New = direct.Chosen
		}
	}
	var legs []control.Choice
	for path, c := range chosen {
		if r.PeerID != 0 && path.Peer == r.PeerName {
			legs = append(legs, c)
		}
	}
	slices.SortFunc(legs, func(x, y control.Choice) int { return y.Updated.Compare(x.Updated) })
	e.Choices = append(e.Choices, legs...)
	return e
}

// exempt is why nothing is chosen for a destination, "" if it is.
func (a *agent) exempt(remote netip.Addr) string {
	where, err := a.loader.Where(remote)
	switch {
	case err != nil:
		a.log.Warn("explaining", "err", err)
	case where == loader.Local:
		return "the address is this host's"
	case where == loader.OnLink:
		return "the address is on a network that this host is connected to"
	}
	return ""
}

// explainAutoFile is what a file says of auto, without an agent that knows of paths and of what the kernel has.
func explainAutoFile(c *config.Config, r policy.Rule, remote netip.Addr) *control.AutoExplanation {
	all := make([]hostcheck.Candidate, len(c.Auto.Candidates))
	for i, name := range c.Auto.Candidates {
		all[i].Name = name
	}
	e := &control.AutoExplanation{Auto: describeAuto(c, all), Path: loader.PathOf(r, remote), Choices: []control.Choice{}}
	if !c.Auto.DryRun {
		e.New = e.Prior
	}
	return e
}
