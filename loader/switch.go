// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
)

// deletionGrace lets programs that found a class in the trie find its rules too before those are deleted.
const deletionGrace = 10 * time.Millisecond

// switchRules changes the kernel's tables from what is in force to next, so that a flow finds at any moment the rule that
// it had or the rule that it will have, and no third one. A reload has new classes throughout: their rules are written
// first, and what a class found in the trie means does not change until the grace is over.
//
// The trie then changes prefix by prefix, the longest first: a flow must not meet a wider new prefix before the one it
// belongs to. Stale prefixes go last, the widest first: each time only new ones are left for a flow to fall to.
func (l *Loader) switchRules(next ruleEntries) error {
	now := &l.rules.inForce
	if now.classes == nil {
		*now = ruleEntries{map[bpf.Prefix]uint32{}, map[bpf.ClassPort]bpf.Rule{}, map[bpf.ExcludeKey]uint32{}}
	}
	err := errors.Join(
		putAll(l.maps["tl_exclude"], now.excludes, next.excludes, keys(next.excludes)),
		putAll(l.maps["tl_rule"], now.rules, next.rules, keys(next.rules)),
	)
	if err == nil {
		err = putAll(l.maps["tl_class"], now.classes, next.classes, widestLast(next.classes))
	}
	if err != nil {
		return fmt.Errorf("writing rules: %w", err)
	}
	stale := widestLast(now.classes)
	slices.Reverse(stale)
	if err := deleteStale(l.maps["tl_class"], now.classes, next.classes, stale); err != nil {
		return fmt.Errorf("deleting stale rules: %w", err)
	}
	time.Sleep(deletionGrace)
	err = errors.Join(
		deleteStale(l.maps["tl_rule"], now.rules, next.rules, keys(now.rules)),
		deleteStale(l.maps["tl_exclude"], now.excludes, next.excludes, keys(now.excludes)),
	)
	if err != nil {
		return fmt.Errorf("deleting stale rules: %w", err)
	}
	return nil
}

// widestLast orders prefixes from the longest to the widest.
func widestLast(classes map[bpf.Prefix]uint32) []bpf.Prefix {
	return slices.SortedFunc(maps.Keys(classes), func(a, b bpf.Prefix) int { return cmp.Compare(b.Prefixlen, a.Prefixlen) })
}

func keys[K comparable, V any](m map[K]V) []K { return slices.Collect(maps.Keys(m)) }

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

// deleteStale deletes what next does not have, in the order of keys, and keeps account in now.
func deleteStale[K, V comparable](m *ebpf.Map, now, next map[K]V, order []K) error {
	for _, k := range order {
		if _, ok := next[k]; ok {
			continue
		}
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map %s: %w", m, err)
		}
		delete(now, k)
	}
	return nil
}
