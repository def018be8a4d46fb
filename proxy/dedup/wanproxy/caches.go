// SPDX-License-Identifier: Apache-2.0

package wanproxy

import "sync"

// maxCaches bounds the caches that a peer can make us hold: the names of groups are the peer's.
const maxCaches = 64

// An encoder uses a sixteenth less than both ends have room for: flows that run at the same time do not use their segments in
// the same order at both ends, and what the decoder has dropped too early has to be asked for.
const slackShift = 4

// Caches are those of one peer and direction. They are safe for concurrent use.
type Caches struct {
	sender bool
	bound  int64

	mu     sync.Mutex
	peer   int64 // the peer's bound in bytes; 0: not known
	epoch  uint64
	caches map[cacheKey]*shared
	tick   uint64 // counts the uses, to find the cache unused for longest
}

type cacheKey struct {
	group string
	size  int
}

type shared struct {
	*cache
	set   *Caches
	users int
	used  uint64
}

// NewSenders makes the caches of what is sent to a peer. Each takes at most bound bytes.
func NewSenders(bound int64) *Caches {
	return &Caches{sender: true, bound: bound, caches: make(map[cacheKey]*shared)}
}

// NewReceivers makes the caches of what is got from a peer. Each takes at most bound bytes.
func NewReceivers(bound int64) *Caches {
	return &Caches{bound: bound, caches: make(map[cacheKey]*shared)}
}

// SetPeer tells which run of the peer's process is at the other end, and how many bytes its caches take. What was sent to another
// run is taken not to be there any more.
func (c *Caches) SetPeer(epoch uint64, bound int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	renewed := c.epoch != 0 && c.epoch != epoch
	c.epoch, c.peer = epoch, bound
	for _, s := range c.caches {
		s.resize(c.capacity(s.size))
		if renewed && c.sender {
			s.retire()
		}
	}
}

// capacity returns how many segments of a size are kept.
func (c *Caches) capacity(size int) int {
	n := slots(c.bound, size, c.sender)
	if !c.sender {
		return n
	}
	if c.peer > 0 {
		n = min(n, slots(c.peer, size, false))
	}
	return max(n-(n>>slackShift)-1, minSlots-1)
}

// open returns the cache of a group, to be given back with close; nil when too many are in use at once.
func (c *Caches) open(group string, size int) *shared {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	k := cacheKey{group, size}
	s := c.caches[k]
	if s == nil {
		if len(c.caches) >= maxCaches && !c.drop() {
			return nil
		}
		s = &shared{cache: newCache(size, slots(c.bound, size, c.sender), c.sender), set: c}
		s.resize(c.capacity(size))
		c.caches[k] = s
	}
	s.users++
	s.used = c.tick
	return s
}

// drop gives up the cache that has been unused for longest.
func (c *Caches) drop() bool {
	var oldest cacheKey
	found := false
	for k, s := range c.caches {
		if s.users == 0 && (!found || s.used < c.caches[oldest].used) {
			oldest, found = k, true
		}
	}
	delete(c.caches, oldest)
	return found
}

func (s *shared) close() {
	s.set.mu.Lock()
	s.users--
	s.set.mu.Unlock()
}

// HeldBytes returns the memory that the caches take in bytes, by group.
func (c *Caches) HeldBytes() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := make(map[string]int64, len(c.caches))
	for k, s := range c.caches {
		m[k.group] += s.heldBytes()
	}
	return m
}
