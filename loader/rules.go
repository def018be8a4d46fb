// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/policy"
)

// The room in the tables that people's rules fill, equal to max_entries in bpf/maps.h.
const (
	maxExcludes = 4096
	maxListen   = 4096
)

// deletionGrace lets programs that found a class in the trie find its rules too before those are deleted.
const deletionGrace = 10 * time.Millisecond

// ruleState is what of the rules is in the kernel.
type ruleState struct {
	inForce ruleEntries
	fits    bufferLimits // of the buffers that the rules in force ask for
	buffers bufferState
}

// ruleEntries is the content of the tables that rules fill.
type ruleEntries struct {
	classes  map[bpf.Prefix]uint32
	rules    map[bpf.ClassPort]bpf.Rule
	excludes map[bpf.ExcludeKey]uint32
	listen   map[uint32]uint32 // port to window_bytes
}

// attachSockops attaches the program that serves rules, telemetry, steering and the fast path.
func (l *Loader) attachSockops(context.Context) {
	coll, err := l.loadSockops()
	if err == nil {
		err = l.attachCgroup(coll, "tl_sockops", ebpf.AttachCGroupSockOps)
	}
	if err != nil {
		detail, remedy := whyNot(err, "5.15")
		l.feature(Feature{Name: "rules", Detail: detail, Remedy: remedy})
		l.feature(Feature{Name: "telemetry", Detail: detail, Remedy: remedy})
		return
	}
	l.feature(Feature{Name: "rules", On: true, Detail: "congestion control, window and pacing are set when a connection begins"})
	l.feature(Feature{Name: "telemetry", On: true, Detail: "flows of rules, and their paths"})
}

// applyRules puts a table in force: what is new or changed first, then what is stale is deleted, so that at any moment a
// flow which both the old and the new table cover finds the rule of one of them.
func (l *Loader) applyRules(t *policy.Table) error {
	excludes, err := l.resolveExcludes(t)
	if err != nil {
		return err
	}
	fits := l.makeRoom(t)
	next := l.entriesOf(t, excludes, fits)
	if err := l.rules.inForce.roomFor(next); err != nil {
		return err
	}
	if err := l.switchRules(t, next); err != nil {
		return err
	}
	l.rules.fits = fits
	l.dropRoom(t)
	return nil
}

// entriesOf returns the content of the tables; fits says which fixed buffers the kernel gives.
func (l *Loader) entriesOf(t *policy.Table, excludes map[bpf.ExcludeKey]uint32, fits bufferLimits) ruleEntries {
	e := ruleEntries{
		classes:  map[bpf.Prefix]uint32{},
		rules:    map[bpf.ClassPort]bpf.Rule{},
		excludes: excludes,
		listen:   map[uint32]uint32{},
	}
	for _, c := range t.Classes() {
		e.classes[bpf.PrefixFrom(c.Prefix)] = c.ID
	}
	for _, x := range t.Entries() {
		e.rules[bpf.ClassPort{ClassId: x.Class, Port: x.Port}] = l.kernelRule(x.Rule, fits)
	}
	for _, r := range t.Rules() {
		for _, p := range r.Ports {
			if w := fits.window(r); w > e.listen[uint32(p)] {
				e.listen[uint32(p)] = w
			}
		}
	}
	return e
}

func (l *Loader) kernelRule(r policy.Rule, fits bufferLimits) bpf.Rule {
	k := bpf.Rule{
		RuleId:      r.ID,
		PeerId:      r.PeerID,
		WindowBytes: fits.window(r),
		SndbufBytes: fits.sndbuf(r),
		PacingBps:   r.PacingBps,
		Priority:    uint8(r.Priority),
		PathBits:    pathBits(r),
		Congestion:  bpf.CCNameFrom(r.Congestion),
	}
	if l.spliceFor(r) {
		k.Splice = 1
	}
	if len(r.ExcludeCgroups)+len(r.ExcludeUsers) > 0 {
		k.HasExcludes = 1
	}
	return k
}

// pathBits returns the prefix length of a rule's paths in the 16-byte address: /24 or /48, or the rule's own if longer.
func pathBits(r policy.Rule) uint8 {
	if r.Remote.Addr().Is4() {
		return uint8(96 + max(24, r.Remote.Bits()))
	}
	return uint8(max(48, r.Remote.Bits()))
}

// roomFor says whether the old and the new entries fit together, as they must for a moment.
func (e ruleEntries) roomFor(next ruleEntries) error {
	for _, c := range []struct {
		what      string
		have, max int
	}{
		{"prefixes", union(e.classes, next.classes), policy.MaxClasses},
		{"entries of prefix and port", union(e.rules, next.rules), policy.MaxEntries},
		{"excluded users and cgroups", union(e.excludes, next.excludes), maxExcludes},
		{"ports with a window", union(e.listen, next.listen), maxListen},
	} {
		if c.have > c.max {
			return fmt.Errorf("the rules before and after the change have %d %s together, the kernel's table holds %d; change them in two steps",
				c.have, c.what, c.max)
		}
	}
	return nil
}

func union[K comparable, V any](a, b map[K]V) int {
	n := len(a)
	for k := range b {
		if _, ok := a[k]; !ok {
			n++
		}
	}
	return n
}

// switchRules changes the kernel's tables from what is in force to next. The order matters: a class is entered after its
// rules and deleted before them, and rules of named ports are written before those of the rest, which they replace.
func (l *Loader) switchRules(t *policy.Table, next ruleEntries) error {
	now := &l.rules.inForce
	ordered := make([]bpf.ClassPort, 0, len(next.rules))
	for _, x := range t.Entries() {
		ordered = append(ordered, bpf.ClassPort{ClassId: x.Class, Port: x.Port})
	}
	if now.classes == nil {
		*now = ruleEntries{map[bpf.Prefix]uint32{}, map[bpf.ClassPort]bpf.Rule{}, map[bpf.ExcludeKey]uint32{}, map[uint32]uint32{}}
	}
	err := errors.Join(
		putAll(l.maps["tl_exclude"], now.excludes, next.excludes, keys(next.excludes)),
		putAll(l.maps["tl_listen_win"], now.listen, next.listen, keys(next.listen)),
		putAll(l.maps["tl_rule"], now.rules, next.rules, ordered),
		putAll(l.maps["tl_class"], now.classes, next.classes, keys(next.classes)),
	)
	if err != nil {
		return fmt.Errorf("writing rules: %w", err)
	}
	deleted, err := deleteStale(l.maps["tl_class"], now.classes, next.classes)
	if err != nil {
		return fmt.Errorf("deleting stale rules: %w", err)
	}
	if deleted > 0 {
		time.Sleep(deletionGrace)
	}
	_, err1 := deleteStale(l.maps["tl_rule"], now.rules, next.rules)
	_, err2 := deleteStale(l.maps["tl_listen_win"], now.listen, next.listen)
	_, err3 := deleteStale(l.maps["tl_exclude"], now.excludes, next.excludes)
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("deleting stale rules: %w", err)
	}
	return nil
}

func keys[K comparable, V any](m map[K]V) []K {
	return slices.Collect(maps.Keys(m))
}

// putAll writes the entries that differ from what the map holds, in the order of keys, and keeps account in now.
func putAll[K, V comparable](m *ebpf.Map, now, next map[K]V, order []K) error {
	for _, k := range order {
		if v, ok := now[k]; ok && v == next[k] {
			continue
		}
		if err := m.Update(k, next[k], ebpf.UpdateAny); err != nil {
			return fmt.Errorf("map %s: %w", m, err)
		}
		now[k] = next[k]
	}
	return nil
}

// deleteStale deletes what next does not have, and returns how many entries that were.
func deleteStale[K, V comparable](m *ebpf.Map, now, next map[K]V) (int, error) {
	n := 0
	for k := range now {
		if _, ok := next[k]; ok {
			continue
		}
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, fmt.Errorf("map %s: %w", m, err)
		}
		delete(now, k)
		n++
	}
	return n, nil
}

// refreshRules follows what changes beside the configuration: the cgroups of excluded services come and go, and with them
// their ids, and someone may lower the host's maxima of buffers again.
func (l *Loader) refreshRules() {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	if l.table == nil {
		return
	}
	excludes, err := l.resolveExcludes(l.table)
	if err != nil {
		l.log.Warn("refreshing rules", "err", err)
		return
	}
	fits := l.measureRoom(l.table)
	if fits == l.rules.fits && maps.Equal(excludes, l.rules.inForce.excludes) {
		return
	}
	if err := l.switchRules(l.table, l.entriesOf(l.table, excludes, fits)); err != nil {
		l.log.Warn("refreshing rules", "err", err)
		return
	}
	l.rules.fits = fits
}
