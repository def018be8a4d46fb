// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
	"github.com/trunkline/trunkline/loader"
)

const (
	chooseEvery = time.Second // what the chooser is made for
	saveEvery   = 30 * time.Second
)

// auto is the choice of congestion controls by path. The chooser decides, the kernel side has flows follow.
type auto struct {
	chooser *choice.Chooser
	memory  memory
	changes atomic.Uint64
	failing bool // reading flows or writing choices fails, and has been said; the choosing goroutine's alone

	candidates []hostcheck.Candidate // of the configuration; guarded by agent.mu
	written    bool                  // the kernel has the choices; guarded by agent.mu
}

// candidatesFor asks the kernel for what a configuration may choose from; nil if nothing is to be chosen.
func candidatesFor(c *config.Config) []hostcheck.Candidate {
	if !c.ChoosesCongestion() {
		return nil
	}
	return hostcheck.Candidates(c.Auto.Candidates)
}

func chooserOptions(c *config.Config, candidates []hostcheck.Candidate) choice.Options {
	return choice.Options{Candidates: hostcheck.Usable(candidates), Explore: c.Auto.Explore, Hold: c.Auto.Hold}
}

// priorFor is what flows get on a path that has no choice: nothing in a dry run.
func priorFor(c *config.Config, candidates []hostcheck.Candidate) string {
	if c.Auto.DryRun {
		return ""
	}
	return choice.New(chooserOptions(c, candidates)).Prior()
}

// offered is what the kernel side must have ready: nothing in a dry run.
func offered(c *config.Config, candidates []hostcheck.Candidate) []string {
	if c.Auto.DryRun {
		return nil
	}
	return hostcheck.Usable(candidates)
}

// startAuto takes up what the agent before had chosen, before the first connection comes. The kernel side is loaded.
func (a *agent) startAuto() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.remember(a.config)
	a.putChoices()
}

// remember reads what was chosen before, the first time that a configuration chooses at all.
func (a *agent) remember(c *config.Config) {
	if c.ChoosesCongestion() {
		now := time.Now()
		a.auto.chooser.Restore(now, a.auto.memory.open(c.PathDB(), now, a.log))
	}
}

// putChoices has flows follow what is chosen now; a.mu is held. What fails is tried again with the next tick.
func (a *agent) putChoices() {
	err := a.loader.SetChoices(a.choices())
	if err != nil && a.auto.written {
		a.log.Warn("choices of congestion controls cannot be put in force; flows keep what they have", "err", err)
	}
	a.auto.written = err == nil
}

// choices are those that the kernel side has flows follow, of the paths used last if there are too many; a.mu is held.
func (a *agent) choices() []loader.Choice {
	if !a.config.ChoosesCongestion() || a.config.Auto.DryRun {
		return nil
	}
	usable := hostcheck.Usable(a.auto.candidates)
	decisions := slices.DeleteFunc(a.auto.chooser.Decisions(), func(d choice.Decision) bool {
		_, known := a.names.peers[d.Path.Peer]
		return d.Path.Peer != "" && !known || !slices.Contains(usable, d.Chosen)
	})
	if most := a.loader.MaxChoices(); len(decisions) > most {
		slices.SortFunc(decisions, func(x, y choice.Decision) int { return y.Updated.Compare(x.Updated) })
		decisions = decisions[:most]
	}
	choices := make([]loader.Choice, len(decisions))
	for i, d := range decisions {
		choices[i] = loader.Choice{Prefix: d.Path.Prefix, PeerID: a.names.peers[d.Path.Peer], Congestion: d.Chosen, Renewals: d.Renewals}
	}
	return choices
}

// choose runs the chooser until ctx ends, then keeps what it has come to.
func (a *agent) choose(ctx context.Context) error {
	tick, save := time.NewTicker(chooseEvery), time.NewTicker(saveEvery)
	defer tick.Stop()
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.tick(time.Now())
		case <-save.C:
			a.followCandidates()
			a.saveChoices()
		}
	}
}

// losses hands loss events to the chooser until ctx ends. Without them it chooses by the rest.
func (a *agent) losses(ctx context.Context) error {
	err := a.loader.Losses(ctx, func(l loader.Loss) {
		a.auto.chooser.Lost(choice.Loss{
			Cookie: l.Cookie, Path: choice.Path{Prefix: l.Path, Peer: a.peerName(l.PeerID)}, At: l.At, SRTTUs: l.SRTTUs,
			RTTMinUs: l.RTTMinUs, CwndPackets: l.CwndPackets, DeliveredBps: l.DeliveredBps,
		})
	})
	if err != nil {
		a.log.Warn("loss events cannot be read, so congestion: auto does not see what losses come from; restart the agent", "err", err)
		<-ctx.Done()
	}
	return nil
}

// peerName is "" for none.
func (a *agent) peerName(id uint32) string {
	if id == 0 {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, n := range a.names.peers { // loss events come often, and peers are few
		if n == id {
			return name
		}
	}
	return ""
}

// tick shows the chooser what flows did within the last second, and puts in force what changes.
func (a *agent) tick(now time.Time) {
	a.mu.Lock()
	c := a.config
	a.mu.Unlock()
	if !c.ChoosesCongestion() {
		return
	}
	flows, err := a.loader.AutoFlows()
	if err != nil {
		if !a.auto.failing {
			a.log.Warn("flows cannot be read, so nothing is chosen", "err", err)
		}
		a.auto.failing = true
		return
	}
	a.auto.failing = false
	changes := a.auto.chooser.Tick(now, a.chooserFlows(flows))
	for _, ch := range changes {
		if ch.Old != ch.New {
			a.auto.changes.Add(1)
		}
		a.logChange(c, ch)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(changes) > 0 || !a.auto.written {
		a.putChoices()
	}
}

func (a *agent) chooserFlows(flows []loader.Flow) []choice.Flow {
	names := a.reverse()
	seen := make([]choice.Flow, 0, len(flows))
	for _, f := range flows {
		if !f.Path.IsValid() {
			continue
		}
		seen = append(seen, choice.Flow{
			Cookie: f.Cookie, Path: choice.Path{Prefix: f.Path, Peer: names.peers[f.PeerID]},
			Age: time.Duration(f.AgeS * float64(time.Second)), Congestion: f.Congestion, SRTTUs: f.SRTTUs, RTTMinUs: f.RTTMinUs,
			MSSBytes: f.MSSBytes, DeliveredBps: f.DeliveredBps, BytesAcked: f.BytesAcked, SegsOut: f.SegsOut, Retransmits: f.Retransmits,
		})
	}
	return seen
}

func (a *agent) logChange(c *config.Config, ch choice.Change) {
	what := "another congestion control is chosen for a path"
	switch renewal := ch.Old == ch.New; {
	case c.Auto.DryRun && renewal:
		what = "dry run: the flows of a path would begin anew"
	case c.Auto.DryRun:
		what = "dry run: another congestion control would be chosen for a path"
	case renewal:
		what = "the flows of a path begin anew"
	}
	log := a.log.With("path", ch.Path.Prefix)
	if ch.Path.Peer != "" {
		log = log.With("peer", ch.Path.Peer)
	}
	log.Info(what, "old", ch.Old, "new", ch.New, "why", ch.Why)
}

// saveChoices keeps what is chosen over a restart.
func (a *agent) saveChoices() { a.auto.memory.save(time.Now(), a.auto.chooser.Records(), a.log) }

// followCandidates keeps up with modules that come and go. What the kernel takes from us it takes until it is another kernel.
func (a *agent) followCandidates() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.config.ChoosesCongestion() || a.ending {
		return
	}
	now := hostcheck.Refresh(a.auto.candidates)
	if slices.Equal(now, a.auto.candidates) {
		return
	}
	a.log.Info("the kernel offers other candidates for congestion: auto than before", "old", hostcheck.Usable(a.auto.candidates),
		"new", hostcheck.Usable(now))
	table, err := a.build(a.config, now)
	if err == nil {
		err = a.switchTo(a.config, table, now, a.addrs)
	}
	if err != nil {
		a.log.Warn("taking other candidates", "err", err)
	}
}
