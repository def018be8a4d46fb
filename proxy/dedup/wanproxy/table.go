// SPDX-License-Identifier: Apache-2.0

package wanproxy

import "sync/atomic"

// A table leads from hashes to slots of the cache: open addressing, half of the hash as a tag in each entry. It is written
// under the cache's lock and searched without it: a search at the same time as a change may miss, which costs a
// reference at most, and what it finds is looked at again under the lock.
type table struct {
	entries []uint64 // tag in the upper half, slot in the lower; 0: free
	shift   uint
}

func newTable(bits uint) *table { return &table{entries: make([]uint64, 1<<bits), shift: 64 - bits} }

func (t *table) home(h uint64) int { return int(h * spread >> t.shift) }

func tag(h uint64) uint64 { return h * spread << 32 }

// find returns the slot of an entry with the hash's tag, or 0.
func (t *table) find(h uint64) uint32 {
	want, mask := tag(h), len(t.entries)-1
	for i := t.home(h); ; i = (i + 1) & mask {
		v := atomic.LoadUint64(&t.entries[i])
		if v == 0 {
			return 0
		}
		if v&^(1<<32-1) == want {
			return uint32(v)
		}
	}
}

// set enters a slot, in place of an entry with the same tag if there is one, whose slot it returns.
func (t *table) set(h uint64, slot uint32) (old uint32) {
	want, mask := tag(h), len(t.entries)-1
	for i := t.home(h); ; i = (i + 1) & mask {
		v := t.entries[i]
		if v == 0 || v&^(1<<32-1) == want {
			atomic.StoreUint64(&t.entries[i], want|uint64(slot))
			return uint32(v)
		}
	}
}

// remove takes out a slot and closes the gap that it leaves. hashOf tells the hash of another entry's slot.
func (t *table) remove(h uint64, slot uint32, hashOf func(slot uint32) uint64) {
	mask := len(t.entries) - 1
	i := t.home(h)
	for ; uint32(t.entries[i]) != slot; i = (i + 1) & mask {
		if t.entries[i] == 0 {
			return
		}
	}
	for j := i; ; {
		j = (j + 1) & mask
		v := t.entries[j]
		if v == 0 {
			break
		}
		// An entry may move to i unless its home lies behind i and not behind j.
		if home := t.home(hashOf(uint32(v))); (j-home)&mask >= (j-i)&mask {
			atomic.StoreUint64(&t.entries[i], v)
			i = j
		}
	}
	atomic.StoreUint64(&t.entries[i], 0)
}

// A filter says of most hashes that are not in the cache that they are not, at the cost of one bit of memory looked at. It is
// written under the cache's lock and read without it.
type filter struct {
	words []uint64
	shift uint
}

func newFilter(bits uint) *filter {
	return &filter{words: make([]uint64, 1<<(bits-6)), shift: 64 - bits}
}

func (f *filter) set(h uint64) {
	bit := h * spread >> f.shift
	atomic.OrUint64(&f.words[bit>>6], 1<<(bit&63))
}

func (f *filter) clear() {
	for i := range f.words {
		atomic.StoreUint64(&f.words[i], 0)
	}
}
