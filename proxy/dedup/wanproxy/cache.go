// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
)

// A cache holds the segments of one peer, direction, group and segment size, shared by all flows. When it is full, the
// segment used least recently goes. It is safe for concurrent use; lookups that find nothing take no lock.
//
// An encoder's cache also knows which segments the peer is known to hold, what followed what, and how segments begin.
type cache struct {
	size   int  // bytes of a segment
	sender bool // an encoder's
	budget *budget

	table  atomic.Pointer[table]
	filter atomic.Pointer[filter] // a sender's

	mu       sync.Mutex
	most     int     // segments that there are slots for
	capacity int     // segments that are kept: at most most
	used     int     // slots that hold or held one; slot numbers begin at 1
	live     int     // segments held
	emptied  uint32  // chain of slots that held one, by older
	taken    int64   // bytes of the budget
	slabs    []*slab // the slots
	newest   uint32  // of the chain of use
	oldest   uint32
	evicted  bool    // the cache has been full
	epoch    uint32  // of what the peer is known to hold
	owners   uint32  // flows so far
	next     *filter // the next filter, without the bits of what is gone, as far as swept
	swept    uint32
	begins   []uint32 // slots by how their segments begin
}

// An entry says what is in a slot. 0 as a slot is none.
type entry struct {
	hash         uint64
	owner        uint32 // flow that declared the segment; everyone: the peer has acknowledged it
	epoch        uint32 // of owner
	newer, older uint32 // by use
	after        uint32 // slot that followed in a flow, gap bytes later
	gap          uint16
	before       uint32 // slot that came before, or that overlaps what came before
	over         uint32 // slot that overlaps, and ends, what followed up to the next segment
}

const (
	everyone = 0
	nobody   = 1 // a flow that is no more

	slabBytes  = 256 << 10
	entryBytes = 40 // as unsafe.Sizeof has it
	minTable   = 4  // bits
	minSlots   = 4
	firstTable = 10
	sweepStep  = 4 // slots looked at for each one that is filled anew
)

// A slab is some of the slots. Its memory is taken when the first of them is used.
type slab struct {
	data    []byte
	entries []entry
}

// perSlab returns how many slots a slab has.
func perSlab(size int) int { return slabBytes / size }

// slots returns how many segments fit into bound bytes, with all that is kept about them; at least minSlots.
func slots(bound int64, size int, sender bool) int {
	return int(min(max(bound/slotBytes(size, sender), minSlots), 1<<30))
}

// slotBytes returns the memory that a segment takes with all that is kept about it.
func slotBytes(size int, sender bool) int64 {
	n := int64(size + entryBytes + 4*8) // a table has two to four entries for each slot
	if sender {
		n += 2*8 + 2*4 // two filters of at most 64 bits a slot, and the index of beginnings
	}
	return n
}

func newCache(size, capacity int, sender bool, b *budget) *cache {
	c := &cache{size: size, sender: sender, budget: b, most: capacity, capacity: capacity, owners: nobody}
	c.makeTables(min(max(uint(bits.Len(uint(capacity))), minTable), firstTable))
	return c
}

func (c *cache) entry(slot uint32) *entry {
	n := uint32(perSlab(c.size))
	return &c.slabs[(slot-1)/n].entries[(slot-1)%n]
}

// segment returns a slot's bytes.
func (c *cache) segment(slot uint32) []byte {
	n := uint32(perSlab(c.size))
	at := int((slot-1)%n) * c.size
	return c.slabs[(slot-1)/n].data[at : at+c.size : at+c.size]
}

// maybe tells whether a hash may be in the cache. Without the lock.
func (c *cache) maybe(h uint64) bool { return c.table.Load().find(h) != 0 }

// lookup returns the slot of a hash, or 0. The caller holds mu, as with all that follows.
func (c *cache) lookup(h uint64) uint32 {
	slot := c.table.Load().find(h)
	if slot == 0 || c.entry(slot).hash != h {
		return 0
	}
	return slot
}

// holds tells whether a slot still has the segment of a hash.
func (c *cache) holds(slot uint32, h uint64) bool { return slot != 0 && c.entry(slot).hash == h }

// touch makes a slot the one that was used last.
func (c *cache) touch(slot uint32) {
	if slot == c.newest {
		return
	}
	c.unlink(slot)
	c.link(slot)
}

func (c *cache) unlink(slot uint32) {
	e := c.entry(slot)
	if e.newer != 0 {
		c.entry(e.newer).older = e.older
	} else if c.newest == slot {
		c.newest = e.older
	}
	if e.older != 0 {
		c.entry(e.older).newer = e.newer
	} else if c.oldest == slot {
		c.oldest = e.newer
	}
	e.newer, e.older = 0, 0
}

func (c *cache) link(slot uint32) {
	e := c.entry(slot)
	e.older = c.newest
	if c.newest != 0 {
		c.entry(c.newest).newer = slot
	}
	c.newest = slot
	if c.oldest == 0 {
		c.oldest = slot
	}
}

// insert puts a segment into the cache, for a flow, and returns its slot. Where the same hash stands for other bytes, they are
// replaced: who refers to them gets the wrong ones, finds that out by the check, and asks.
func (c *cache) insert(h uint64, segment []byte, owner uint32) uint32 {
	if slot := c.lookup(h); slot != 0 {
		if e := c.entry(slot); !bytes.Equal(c.segment(slot), segment) {
			copy(c.segment(slot), segment)
			e.owner, e.epoch = owner, c.epoch
			c.begin(slot, segment)
		} else if e.owner == nobody || e.epoch != c.epoch {
			e.owner, e.epoch = owner, c.epoch
		}
		c.touch(slot)
		return slot
	}
	slot := c.free()
	e := c.entry(slot)
	*e = entry{hash: h, owner: owner, epoch: c.epoch}
	copy(c.segment(slot), segment)
	c.link(slot)
	if old := c.table.Load().set(h, slot); old != 0 {
		c.entry(old).hash = 0 // no longer to be found
	}
	if c.sender {
		c.filter.Load().set(h)
		if c.next != nil {
			c.next.set(h)
		}
		c.begin(slot, segment)
	}
	return slot
}

// free returns a slot for a new segment.
func (c *cache) free() uint32 {
	full := c.live >= c.capacity || c.emptied == 0 && c.used == c.slots() && !c.enlarge()
	for full && c.live > 0 {
		c.evict()
		full = c.live >= c.capacity
	}
	c.live++
	if slot := c.emptied; slot != 0 {
		c.emptied = c.entry(slot).older
		if c.sender {
			c.sweep()
		}
		return slot
	}
	c.used++
	if 2*c.used > len(c.table.Load().entries) {
		c.grow()
	}
	return uint32(c.used)
}

// slots returns how many slots there is memory for. All slabs are full ones, but for the last if there are all slots that may be.
func (c *cache) slots() int { return min(len(c.slabs)*perSlab(c.size), c.most) }

// enlarge takes memory for more slots; false if there can be no more.
func (c *cache) enlarge() bool {
	n := min(perSlab(c.size), c.most-c.slots())
	bytes := int64(n) * slotBytes(c.size, c.sender)
	if n <= 0 || !c.budget.take(bytes) {
		return false
	}
	c.taken += bytes
	c.slabs = append(c.slabs, &slab{data: make([]byte, n*c.size), entries: make([]entry, n)})
	return true
}

// giveBack gives the cache's memory back to the budget. It is not used after that.
func (c *cache) giveBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget.used.Add(-c.taken)
	c.taken = 0
}

// evict empties the slot that was used least recently.
func (c *cache) evict() {
	c.evicted = true
	c.drop(c.oldest)
}

// drop empties a slot.
func (c *cache) drop(slot uint32) {
	c.live--
	c.unlink(slot)
	e := c.entry(slot)
	c.table.Load().remove(e.hash, slot, func(s uint32) uint64 { return c.entry(s).hash })
	*e = entry{owner: nobody, older: c.emptied}
	c.emptied = slot
}

// grow makes the tables larger.
func (c *cache) grow() {
	c.makeTables(uint(bits.Len(uint(len(c.table.Load().entries)))))
}

// makeTables makes tables of 2^b slots, at most half of which are to be used, and enters what is in the cache.
func (c *cache) makeTables(b uint) {
	t := newTable(b)
	var f *filter
	if c.sender {
		f = newFilter(b + 4)
		c.begins = make([]uint32, 1<<(b-1))
	}
	for slot := c.oldest; slot != 0; slot = c.entry(slot).newer {
		h := c.entry(slot).hash
		t.set(h, slot)
		if c.sender {
			f.set(h)
			c.begin(slot, c.segment(slot))
		}
	}
	c.table.Store(t)
	if c.sender {
		c.filter.Store(f)
		c.next = nil
	}
}

// sweep takes some slots into the next filter, which replaces the one in use, and with it the bits of what is gone, when it has all.
func (c *cache) sweep() {
	if c.next == nil {
		c.next = &filter{words: make([]uint64, len(c.filter.Load().words)), shift: c.filter.Load().shift}
		c.swept = 0
	}
	for range sweepStep {
		if c.swept++; int(c.swept) > c.used {
			c.next = c.filter.Swap(c.next)
			c.next.clear() // who still looks at it may miss something
			c.swept = 0
			return
		}
		c.next.set(c.entry(c.swept).hash)
	}
}

// begin enters how a segment begins.
func (c *cache) begin(slot uint32, segment []byte) {
	if c.sender {
		c.begins[prefixHash(segment)&uint64(len(c.begins)-1)] = slot
	}
}

// beginning returns a slot whose segment may begin as b does, or 0.
func (c *cache) beginning(b []byte) uint32 {
	return c.begins[prefixHash(b)&uint64(len(c.begins)-1)]
}

// visible tells whether a flow may refer to a slot: the peer is known to hold it, or will before the flow's next bytes come.
func (c *cache) visible(slot, flow uint32) bool {
	e := c.entry(slot)
	return e.epoch == c.epoch && (e.owner == everyone || e.owner == flow)
}

// now returns the epoch.
func (c *cache) now() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// retire makes the cache forget what the peer is known to hold, but not the bytes: they may be asked for. An epoch that is not the
// current one has been retired already.
func (c *cache) retire(epoch uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		c.epoch++
	}
}

// flow returns a number for a new flow.
func (c *cache) flow() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners++; c.owners <= nobody {
		c.owners, c.epoch = nobody+1, c.epoch+1 // numbers begin anew: none of the old ones may be mistaken for a new one
	}
	return c.owners
}

// resize changes how many segments the cache may hold, at most as many as it was made for.
func (c *cache) resize(capacity int) {
	c.mu.Lock()
	c.capacity = min(max(capacity, 1), c.most)
	c.mu.Unlock()
}

// get appends the segment of a hash to dst and takes it for used; false if it is not there.
func (c *cache) get(dst []byte, h uint64) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := c.lookup(h)
	if slot == 0 {
		return dst, false
	}
	c.touch(slot)
	return append(dst, c.segment(slot)...), true
}

// put inserts a segment whose hash is not known yet.
func (c *cache) put(segment []byte) {
	h := sum(segment)
	c.mu.Lock()
	c.insert(h, segment, everyone)
	c.mu.Unlock()
}

// shrink lets the cache hold a sixteenth less: the peer has dropped what it should have, so it has less room than it said.
func (c *cache) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.capacity > max(c.most>>4, minSlots) {
		c.capacity -= c.capacity >> 4
	}
}

// heldBytes returns the memory that the cache takes.
func (c *cache) heldBytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(8*len(c.table.Load().entries) + 4*len(c.begins))
	for _, s := range c.slabs {
		n += int64(len(s.data) + entryBytes*len(s.entries))
	}
	if f := c.filter.Load(); f != nil {
		n += int64(8 * len(f.words))
	}
	if c.next != nil {
		n += int64(8 * len(c.next.words))
	}
	return n
}

// appendHash appends a hash as it goes over the wire.
func appendHash(dst []byte, h uint64) []byte { return binary.BigEndian.AppendUint64(dst, h) }
