// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A cache bounds how much of the logs' files is in memory: what is mapped in and counts as the agent's. The segments used
// least lately are unmapped; what they hold stays in the file, and as long as the kernel has memory to spare in its page cache.
type cache struct {
	limit int64
	used  atomic.Int64

	mu    sync.Mutex
	rings []*ring
}

func (c *cache) add(r *ring) {
	c.mu.Lock()
	c.rings = append(c.rings, r)
	c.mu.Unlock()
}

func (c *cache) remove(r *ring) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.rings {
		if other == r {
			c.rings = append(c.rings[:i], c.rings[i+1:]...)
			return
		}
	}
}

// came counts a segment in, and unmaps others if there are too many now: before anybody has touched the segment.
func (c *cache) came(r *ring) {
	r.resident.Add(int64(r.segment))
	if c.used.Add(int64(r.segment)) <= c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.used.Load() > c.limit && c.unmap() {
	}
}

func (c *cache) left(r *ring) {
	r.resident.Add(-int64(r.segment))
	c.used.Add(-int64(r.segment))
}

// unmap gives the memory of the segment back that was used least lately. Whoever is reading it right now finds the bytes again
// in the file.
func (c *cache) unmap() bool {
	var victim *ring
	at, least := 0, uint64(math.MaxUint64)
	for _, r := range c.rings {
		for i := range r.used {
			if u := r.used[i].Load(); u&1 != 0 && u < least {
				victim, at, least = r, i, u
			}
		}
	}
	if victim == nil {
		return false
	}
	if victim.used[at].CompareAndSwap(least, least&^1) {
		victim.cache.left(victim)
		f := victim.from.(*fileSource)
		_ = unix.Madvise(f.have(at), unix.MADV_DONTNEED)
	}
	return true
}
