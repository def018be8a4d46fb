// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cmd/internal/config"
)

// congestion says of what rules name, and of what auto may choose, whether this kernel has it.
func congestion(r *report, c *config.Config) {
	missing := MissingCongestion(c.Rules)
	for _, m := range missing {
		r.add(Warning, "congestion", "%s of %s is not available; its flows keep the kernel's default: %s",
			m.Name, strings.Join(m.Rules, ", "), m.Remedy)
	}
	if len(missing) == 0 {
		r.add(OK, "congestion", "every algorithm that rules name is there")
	}
	if c.ChoosesCongestion() {
		candidates(r, c, Candidates(c.Auto.Candidates))
	}
}

func candidates(r *report, c *config.Config, all []Candidate) {
	usable := Usable(all)
	for _, one := range all {
		if !one.Usable() {
			r.add(Warning, "auto", "candidate %s is left out: %s; %s", one.Name, one.Why, one.Remedy)
		}
	}
	mode := ""
	if c.Auto.DryRun {
		mode = " (dry run: nothing is set)"
	}
	if len(usable) == 0 {
		r.add(Warning, "auto", "no candidate can be had, so flows keep the kernel's default%s; see `trunkline cc` for what can", mode)
		return
	}
	r.add(OK, "auto", "chooses from %s%s", strings.Join(usable, ", "), mode)
}

// Candidate is an algorithm that paths may be given, and whether this kernel has it now.
type Candidate struct {
	Name        string
	Why, Remedy string // why it cannot be had and what to do about it; "": it can
}

// Usable says whether the kernel offers the candidate, or takes it from us.
func (c Candidate) Usable() bool { return c.Why == "" }

// Usable returns the names of those that can be had, in their order.
func Usable(all []Candidate) []string {
	names := []string{}
	for _, c := range all {
		if c.Usable() {
			names = append(names, c.Name)
		}
	}
	return names
}

// Candidates asks the kernel for each of the names: one of trunkline's own can be had if the kernel takes such algorithms,
// another one if the kernel offers it. A module that is not loaded counts as missing: programs in the kernel load none.
func Candidates(names []string) []Candidate {
	have, err := cc.Available()
	var probed bool
	var refusal error
	all := make([]Candidate, len(names))
	for i, name := range names {
		all[i].Name = name
		_, ours := cc.Lookup(name)
		switch {
		case slices.Contains(have, name):
		case ours:
			if !probed {
				_, refusal = cc.Probe()
				probed = true
			}
			all[i].refused(refusal)
		case err != nil:
			all[i].Why, all[i].Remedy = err.Error(), "see that /proc is mounted"
		default:
			all[i].missing(have)
		}
	}
	return all
}

// Refresh asks again for those that are the kernel's own, which come and go with modules; what it said of ours holds.
func Refresh(before []Candidate) []Candidate {
	now := slices.Clone(before)
	have, err := cc.Available()
	if err != nil {
		return now
	}
	for i := range now {
		if strings.HasPrefix(now[i].Name, "tl_") {
			continue
		}
		now[i] = Candidate{Name: now[i].Name}
		if !slices.Contains(have, now[i].Name) {
			now[i].missing(have)
		}
	}
	return now
}

// refused notes why the kernel takes none of ours; nil: it does.
func (c *Candidate) refused(err error) {
	if err == nil {
		return
	}
	c.Why, c.Remedy = err.Error(), "see `trunkline cc`"
	var u *cc.Unsupported
	if errors.As(err, &u) {
		c.Why, c.Remedy = u.Why, u.Remedy
	}
}

func (c *Candidate) missing(have []string) {
	c.Why = "this kernel does not offer it now"
	if strings.HasPrefix(c.Name, "tl_") {
		c.Why = "trunkline has no algorithm of this name"
		c.Remedy = "correct it, see `trunkline cc`"
		return
	}
	c.Remedy = remedyFor(c.Name, have)
}

// Missing is a congestion control that rules name and this kernel does not offer now.
type Missing struct {
	Name   string
	Rules  []string // that name it
	Remedy string
}

// MissingCongestion gives the kernel's congestion controls that rules name and this kernel does not offer now, by name. Those
// that trunkline brings along it registers itself.
func MissingCongestion(rules []config.Rule) []Missing {
	have, err := cc.Available()
	if err != nil {
		return nil
	}
	var missing []Missing
	for _, r := range rules {
		if _, ours := cc.Lookup(r.Congestion); ours || r.Congestion == "" || slices.Contains(have, r.Congestion) {
			continue
		}
		i := slices.IndexFunc(missing, func(m Missing) bool { return m.Name == r.Congestion })
		if i < 0 {
			i, missing = len(missing), append(missing, Missing{Name: r.Congestion, Remedy: remedyFor(r.Congestion, have)})
		}
		missing[i].Rules = append(missing[i].Rules, "rule "+r.Name)
	}
	slices.SortFunc(missing, func(a, b Missing) int { return strings.Compare(a.Name, b.Name) })
	return missing
}

// remedyFor names what comes without a module, if there is such a thing.
func remedyFor(name string, have []string) string {
	remedy := "modprobe tcp_" + name
	if _, ok := cc.Lookup("tl_" + name); ok {
		return remedy + ", or name tl_" + name + ", which needs no module"
	}
	return remedy + ", or choose one of " + strings.Join(have, " ") + ", or one of `trunkline cc`"
}
