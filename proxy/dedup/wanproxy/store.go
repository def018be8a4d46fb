// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"sync"
	"sync/atomic"
)

// maxCaches bounds the caches that a peer can make us hold in one direction: the names of groups are the peer's.
const maxCaches = 64

// An encoder uses a sixteenth less than both ends have room for: flows that run at the same time do not use their segments in
// the same order at both ends, and what the decoder has dropped too early has to be asked for.
const slackShift = 4

// A Store holds the segments of all peers, in memory. It is bounded as a whole: half of the bytes are for what is sent, half for
// what is received. It is safe for concurrent use.
type Store struct {
	sent, received budget

	mu     sync.Mutex
	caches map[cacheKey]*shared
	tick   uint64 // counts the uses, to find the cache unused for longest
}

type cacheKey struct {
	of    *Caches
	group string
	size  int
}

// shared is a cache that flows have open.
type shared struct {
	*cache
	key   cacheKey
	users int
	used  uint64 // tick of the last use
}

// A budget is bytes that caches take, with all that they keep about their segments.
type budget struct {
	limit int64
	used  atomic.Int64
	short atomic.Bool // a cache could not grow
}

// take takes n bytes, if there are so many left.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > b.limit {
			b.short.Store(true)
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// NewStore makes an empty store of so many bytes.
func NewStore(bytes int64) *Store {
	s := &Store{caches: make(map[cacheKey]*shared)}
	s.sent.limit, s.received.limit = bytes/2, bytes/2
	return s
}

// Caches are those of one peer and direction.
type Caches struct {
	store  *Store
	sender bool
	peer   int64 // the peer's store in bytes; 0: not known; guarded by store.mu, as the rest
	epoch  uint64
	count  int
}

// Peer makes the caches of a peer: of what is sent to it, and of what is received. Those of a peer that is no more are dropped
// when others need the room.
func (s *Store) Peer() (sent, received *Caches) {
	return &Caches{store: s, sender: true}, &Caches{store: s}
}

// SetPeer tells which run of the peer's process is at the other end, and how many bytes its store has, 0 if that is not known.
// What was sent to another run is taken not to be there any more.
func (c *Caches) SetPeer(epoch uint64, bytes int64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	renewed, resized := c.epoch != 0 && c.epoch != epoch, c.peer != bytes
	c.epoch, c.peer = epoch, bytes
	for k, s := range c.store.caches {
		if k.of != c {
			continue
		}
		if resized {
			s.resize(c.capacity(k.size))
		}
		if renewed && c.sender {
			s.retire(s.now())
		}
	}
}

func (c *Caches) budget() *budget {
	if c.sender {
		return &c.store.sent
	}
	return &c.store.received
}

// capacity returns how many segments of a size a cache may hold at most.
func (c *Caches) capacity(size int) int {
	n := slots(c.budget().limit, size, c.sender)
	if !c.sender {
		return n
	}
	if c.peer > 0 {
		n = min(n, slots(c.peer/2, size, false))
	}
	return max(n-n>>slackShift-1, minSlots-1)
}

// open returns the cache of a group, to be given back with close; nil when there is no room for it.
func (c *Caches) open(group string, size int) *shared {
	st := c.store
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tick++
	k := cacheKey{c, group, size}
	s := st.caches[k]
	if s == nil {
		if c.count >= maxCaches && !st.drop(c.sender, c) {
			return nil
		}
		most := slots(c.budget().limit, size, c.sender)
		s = &shared{cache: newCache(size, most, c.sender, c.budget()), key: k}
		s.resize(c.capacity(size))
		for !s.enlarge() {
			if !st.drop(c.sender, nil) {
				return nil
			}
		}
		st.caches[k] = s
		c.count++
	}
	s.users++
	s.used = st.tick
	return s
}

func (s *shared) close() {
	st := s.key.of.store
	st.mu.Lock()
	defer st.mu.Unlock()
	s.users--
	if b := s.key.of.budget(); b.short.Swap(false) {
		st.drop(s.key.of.sender, nil) // idle caches make room for those in use
	}
}

// drop gives up the cache of a direction, and of one peer if that is given, that has been unused for longest.
func (s *Store) drop(sender bool, of *Caches) bool {
	var oldest *shared
	for k, c := range s.caches {
		if k.of.sender == sender && (of == nil || k.of == of) && c.users == 0 && (oldest == nil || c.used < oldest.used) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	delete(s.caches, oldest.key)
	oldest.key.of.count--
	oldest.giveBack()
	return true
}

// HeldBytes returns the memory that the caches take in bytes.
func (c *Caches) HeldBytes() (n int64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for k, s := range c.store.caches {
		if k.of == c {
			n += s.heldBytes()
		}
	}
	return n
}
