// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// ccState is which of our congestion controls the kernel offers for our sake.
type ccState struct {
	mode    cc.Mode // how this kernel registers them
	off     error   // why it does not; a *cc.Unsupported
	held    map[string]*cc.Registration
	refused map[string]error // of those that rules name
	lockDir uint64           // the ledger's entry of the directory, 0: none yet

	candidates []string // for rules with Auto
}

// startAlgorithms asks how the kernel registers congestion controls. None is registered before a rule names it.
func (l *Loader) startAlgorithms() {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.cc.held = map[string]*cc.Registration{}
	l.cc.candidates = slices.Clone(l.o.Candidates)
	if l.cc.mode, l.cc.off = cc.Probe(); l.o.ccMode != cc.Any {
		l.cc.mode = l.o.ccMode
	}
	l.onClose(l.dropAllAlgorithms)
}

// SetCandidates says which congestion controls may be chosen, with the next Apply in force: those of ours are registered
// while a rule has Auto.
func (l *Loader) SetCandidates(names []string) {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.cc.candidates = slices.Clone(names)
}

// holdAlgorithms registers what the rules name of ours and is not registered yet: before the rules are in force, so that no
// flow asks for a name too early. A name that the kernel does not take leaves its flows with the kernel's default.
func (l *Loader) holdAlgorithms(t *policy.Table) {
	l.cc.refused = map[string]error{}
	for _, name := range namedAlgorithms(t, l.cc.candidates) {
		if l.cc.held[name] != nil {
			continue
		}
		r, err := l.holdAlgorithm(name)
		if err != nil {
			l.cc.refused[name] = err
			continue
		}
		l.cc.held[name] = r
		l.log.Info("congestion control is registered", "name", name, "by", r.Mode, "shared", r.Shared)
	}
	l.feature(l.algorithmsFeature())
}

func (l *Loader) holdAlgorithm(name string) (*cc.Registration, error) {
	if l.cc.off != nil {
		return nil, l.cc.off
	}
	o := cc.Options{Mode: l.cc.mode, LockDir: l.o.lockDir}
	if l.o.Ledger != nil {
		o.Recorder = ccNotes{l.o.Ledger}
		if l.cc.mode == cc.ByMap && l.cc.lockDir == 0 {
			id, err := l.makeDir(l.o.lockDir)
			if err != nil {
				return nil, err
			}
			l.cc.lockDir = id
		}
	}
	return cc.Register(name, o)
}

// dropAlgorithms lets go of what no rule names any more: flows that have it keep it.
func (l *Loader) dropAlgorithms(t *policy.Table) {
	named := namedAlgorithms(t, l.cc.candidates)
	for _, name := range slices.Sorted(maps.Keys(l.cc.held)) {
		if slices.Contains(named, name) {
			continue
		}
		if err := l.cc.held[name].Close(); err != nil {
			l.log.Warn("letting go of a congestion control", "name", name, "err", err)
		}
		delete(l.cc.held, name)
	}
	l.feature(l.algorithmsFeature())
}

func (l *Loader) dropAllAlgorithms() error {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	var errs []error
	for _, r := range l.cc.held {
		errs = append(errs, r.Close())
	}
	l.cc.held = nil
	if l.cc.lockDir != 0 {
		_, err := l.o.Ledger.UndoOnly(l.log, l.cc.lockDir)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// namedAlgorithms returns those of ours that rules name, and the candidates while there is a rule with Auto, in order and
// once each.
func namedAlgorithms(t *policy.Table, candidates []string) []string {
	var names []string
	for _, r := range t.Rules() {
		names = append(names, r.Congestion)
		if r.Auto {
			names = append(names, candidates...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { _, ours := cc.Lookup(name); return !ours })
}

// algorithmsFeature says how ours are registered, and which.
func (l *Loader) algorithmsFeature() Feature {
	f := Feature{Name: "struct-ops", On: true, Detail: "by " + string(l.cc.mode)}
	if l.cc.off != nil {
		return offFeature(f.Name, l.cc.off)
	}
	if len(l.cc.refused) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(l.cc.refused)))
		f = offFeature(f.Name, l.cc.refused[name])
		f.Detail = name + ": " + f.Detail
		return f
	}
	var held []string
	for _, name := range slices.Sorted(maps.Keys(l.cc.held)) {
		switch r := l.cc.held[name]; {
		case r.Other:
			name += " (another agent's, of another version)"
		case r.Shared:
			name += " (shared with another agent)"
		}
		held = append(held, name)
	}
	if len(held) > 0 {
		f.Detail += ": " + strings.Join(held, ", ")
	}
	return f
}

func offFeature(name string, err error) Feature {
	var u *cc.Unsupported
	if errors.As(err, &u) {
		return Feature{Name: name, Detail: u.Why, Remedy: u.Remedy}
	}
	return Feature{Name: name, Detail: fmt.Sprint(err), Remedy: "see `trunkline cc`; its flows keep the kernel's default"}
}

// ccNotes is the ledger as the congestion controls see it.
type ccNotes struct{ *ledger.Ledger }

// Record writes down that a name will be registered for good.
func (n ccNotes) Record(name, lockFile string) (forget func() error, err error) {
	id, err := n.Ledger.Record(ledger.Entry{Kind: ledger.StructOps, Target: name, New: lockFile})
	return func() error { return n.Forget(id) }, err
}
