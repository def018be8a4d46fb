// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Usage is what all histories of an agent take, in bytes.
type Usage struct {
	MemoryBytes, MemoryLimit int64 // of logs; their indexes come on top
	DiskBytes, DiskLimit     int64 // of all files; 0: histories are in memory
	IndexBytes               int64
	Directory                string
	Problems                 []string // what wants attention, for people
}

// LogStats is a log and whose it is.
type LogStats struct {
	Key   []byte // of the peer
	Sent  bool   // what was sent to the peer; else what it has sent
	Group string
	Stats
}

// Usage tells what all histories take now.
func (s *Store) Usage() Usage {
	u := Usage{MemoryBytes: s.pool.used.Load(), MemoryLimit: s.opt.MemoryBytes}
	if s.cache != nil {
		u.MemoryBytes, u.DiskBytes, u.DiskLimit = s.cache.used.Load(), s.pool.used.Load(), s.opt.DiskBytes
		u.Directory = s.opt.Directory
	}
	for _, l := range s.Logs() {
		u.IndexBytes += l.IndexBytes
		if l.Problem != "" {
			u.Problems = append(u.Problems, fmt.Sprintf("history of group %s: %s", l.Group, l.Problem))
		}
	}
	if short := s.pool.short.Load(); short != nil && time.Now().Before(short.until) {
		u.Problems = append(u.Problems, "histories cannot grow: "+short.err.Error()+"; make room, or set history.disk lower")
	}
	s.mu.Lock()
	for _, what := range slices.Sorted(maps.Keys(s.problems)) {
		u.Problems = append(u.Problems, s.problems[what])
	}
	s.mu.Unlock()
	return u
}

// Logs describes all logs, by peer, direction and group.
func (s *Store) Logs() (all []LogStats) {
	for _, p := range s.sorted() {
		add := func(sent bool, groups map[string]Stats) {
			for _, g := range slices.Sorted(maps.Keys(groups)) {
				all = append(all, LogStats{Key: p.key, Sent: sent, Group: g, Stats: groups[g]})
			}
		}
		add(true, p.senders.Stats())
		add(false, p.receivers.Stats())
	}
	return all
}

// sorted gives the peers in one order.
func (s *Store) sorted() []*peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.peers), func(a, b *peer) int { return cmp.Compare(string(a.key), string(b.key)) })
}

// Purge forgets what is held, of one peer if its key is given, and of one group if that is not empty. What it returns is how many logs
// that were, and how many bytes are free now, more or less. Flows go on, and begin the histories anew.
func (s *Store) Purge(key []byte, group string) (logs int, bytes int64) {
	before := s.pool.used.Load()
	for _, p := range s.sorted() {
		if key != nil && string(p.key) != string(key) {
			continue
		}
		var all []kept
		for _, g := range p.senders.all() {
			all = append(all, g)
		}
		for _, g := range p.receivers.all() {
			all = append(all, g)
		}
		for _, l := range all {
			if group == "" || l.name() == group {
				l.purge()
				logs++
			}
		}
	}
	s.kick()
	return logs, max(before-s.pool.used.Load(), 0)
}
