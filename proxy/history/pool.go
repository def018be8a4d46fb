// SPDX-License-Identifier: Apache-2.0

package history

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A pool bounds what the logs of an agent take together, in bytes: of memory, or on disk. It is exact: room is made before
// anything is allocated, by giving back the segments that were used least lately, whosever they are.
type pool struct {
	limit int64 // 0: none
	used  atomic.Int64
	short atomic.Pointer[shortage]
	clock atomic.Uint64 // counts uses of logs; segments are stamped with it

	mu   sync.Mutex // one looks for what to give back at a time; guards logs
	logs []owner
}

// An owner has segments in a pool.
type owner interface {
	// oldest returns the stamp of the segment used least lately of those that may be given back now; ok is false if there is none.
	oldest() (stamp uint64, ok bool)
	// evict gives that segment back. It returns false if that can no longer be.
	evict() bool
}

// A shortage is a disk that was full. For a while no more is taken than there was then, so that old segments make room for new
// ones.
type shortage struct {
	used  int64
	until time.Time
	err   error
}

const shortFor = 30 * time.Second

func (p *pool) bound() int64 {
	limit := p.limit
	if s := p.short.Load(); s != nil && time.Now().Before(s.until) && (limit == 0 || s.used < limit) {
		return s.used
	}
	return limit
}

// full tells that nothing more can be allocated though there should be room.
func (p *pool) full(err error) {
	p.short.Store(&shortage{used: p.used.Load(), until: time.Now().Add(shortFor), err: err})
}

func (p *pool) add(o owner) {
	p.mu.Lock()
	p.logs = append(p.logs, o)
	p.mu.Unlock()
}

func (p *pool) remove(o owner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.logs {
		if l == o {
			p.logs = append(p.logs[:i], p.logs[i+1:]...)
			return
		}
	}
}

// tick returns a stamp for what is used now.
func (p *pool) tick() uint64 { return p.clock.Add(1) }

// fits tells whether there is room for n more bytes.
func (p *pool) fits(n int64) bool {
	limit := p.bound()
	return limit == 0 || p.used.Load()+n <= limit
}

// take counts n bytes in, if there is room for them.
func (p *pool) take(n int64) bool {
	if limit := p.bound(); p.used.Add(n) > limit && limit > 0 {
		p.used.Add(-n)
		return false
	}
	return true
}

// force counts n bytes in that are there already; reserve mends what they are too many.
func (p *pool) force(n int64) { p.used.Add(n) }

func (p *pool) give(n int64) { p.used.Add(-n) }

// reserve makes room for n more bytes, as far as segments may be given back. The caller holds no log's lock.
func (p *pool) reserve(n int64) {
	if p.fits(n) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.fits(n) {
		var victim owner
		least := uint64(math.MaxUint64)
		for _, o := range p.logs {
			if stamp, ok := o.oldest(); ok && stamp < least {
				victim, least = o, stamp
			}
		}
		if victim == nil || !victim.evict() {
			return
		}
	}
}
