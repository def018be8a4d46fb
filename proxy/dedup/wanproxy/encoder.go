// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/internal/sniff"
	"github.com/trunkline/trunkline/proxy/dedup/stage"
)

// An Encoder turns one direction of a flow into payloads. Encode, Resend and Rest exclude each other; the rest may be called
// at any time.
type Encoder struct {
	sniff.Tally

	cache *shared // nil: nothing is referred to
	flow  uint32  // number in the cache

	work   sync.Mutex // held while a block is encoded or sent again
	search searcher
	out    commands
	pack   stage.Packer
	probe  sniff.Backoff
	sniff  sniff.Sniffer
	effort atomic.Uint32
	asks   asks
	closed bool

	mu       sync.Mutex // guards what Ack changes; taken after work
	sent     stream
	declared []declared // segments that are not acknowledged, in the order of their blocks
	known    int        // declared[known:] are not acknowledged
}

// declared is a segment that the peer has once it acknowledges the block.
type declared struct {
	block uint64
	hash  uint64
	slot  uint32
	epoch uint32
}

// NewEncoder makes an encoder for a flow of a group. Without caches (nil) it only compresses.
func NewEncoder(c *Caches, group string, s codec.Spec) *Encoder {
	size := s.Segment()
	e := &Encoder{pack: stage.NewPacker(s.Stage)}
	e.effort.Store(uint32(codec.EffortDefault))
	if c != nil {
		e.cache = c.open(group, size)
	}
	if e.cache != nil {
		e.flow = e.cache.flow()
	}
	e.sent.back = 2*size + 1
	e.out = commands{e: e, size: size, over: s.Kind == codec.WANProxy2}
	e.search = searcher{e: e, size: size, gone: power(size), carry: carry{segment: make([]byte, 0, size)}}
	return e
}

// Encode appends one payload for src, 1 to codec.MaxBlock bytes, to dst.
func (e *Encoder) Encode(dst, src []byte) []byte {
	e.work.Lock()
	defer e.work.Unlock()
	if e.sniff.Encrypted(src) {
		e.SetEncrypted()
	}
	effort := codec.Effort(e.effort.Load())
	epoch := uint32(0)
	if e.cache != nil {
		epoch = e.cache.now()
	}
	e.mu.Lock()
	number := e.sent.number()
	c := e.sent.put(src, epoch)
	e.mu.Unlock()
	e.out.begin(c, len(src), number)
	e.out.least = worthwhile
	if _, packs := e.pack.Level(effort); packs {
		e.out.least = packedWorthwhile
	}
	if e.cache == nil || e.Encrypted() || effort == codec.EffortRaw {
		e.search.skip()
		e.out.plain(src)
	} else {
		e.search.run()
		e.mu.Lock()
		e.declared = append(e.declared, e.out.declared...)
		e.mu.Unlock()
	}
	start := len(dst)
	dst = e.payload(dst, effort)
	dst = appendCheck(dst, check(number, src), e.out.flags&flagShort != 0)
	e.Count(len(src), len(dst)-start, len(src)-e.out.literals)
	return dst
}

// payload appends all of a payload but its check.
func (e *Encoder) payload(dst []byte, effort codec.Effort) []byte {
	o := &e.out
	at := len(dst)
	dst = append(dst, 0)
	for _, f := range []struct {
		flag byte
		v    int
	}{{flagBreak, o.broken}, {flagSkip, o.skip}, {flagCut, o.cut}} {
		if o.flags&f.flag != 0 {
			dst = binary.AppendUvarint(dst, uint64(f.v))
		}
	}
	level, packs := e.pack.Level(effort)
	if packs && !e.Encrypted() && len(o.bytes) > 0 && e.probe.Try(len(o.bytes)) {
		o.flags |= flagPacked
		dst = binary.AppendUvarint(dst, uint64(len(o.bytes)))
		start, fresh := len(dst), false
		if dst, fresh = e.pack.Pack(dst, o.bytes, level); fresh {
			o.flags |= flagFresh
		}
		e.probe.Result(len(o.bytes), len(dst)-start)
	} else {
		dst = append(dst, o.bytes...)
	}
	dst[at] = o.flags
	return dst
}

// Ack tells that the peer has turned all payloads numbered below decoded into bytes.
func (e *Encoder) Ack(decoded uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent.ack(decoded)
	n := e.known
	for n < len(e.declared) && e.declared[n].block < decoded {
		n++
	}
	if n > e.known {
		e.cache.acknowledge(e.declared[e.known:n])
		e.known = n
	}
	if 2*e.known >= len(e.declared) {
		e.declared = e.declared[:copy(e.declared, e.declared[e.known:])]
		e.known = 0
	}
}

// acknowledge lets all flows refer to segments.
func (c *cache) acknowledge(list []declared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range list {
		if d.epoch == c.epoch && c.holds(d.slot, d.hash) {
			e := c.entry(d.slot)
			e.owner, e.epoch = everyone, d.epoch
		}
	}
}

// disown lets no flow refer to segments that the peer may not have got.
func (c *cache) disown(flow uint32, list []declared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range list {
		if c.holds(d.slot, d.hash) && c.entry(d.slot).owner == flow {
			c.entry(d.slot).owner = nobody
		}
	}
}

// SetEffort says how much work new bytes are worth from the next payload on.
func (e *Encoder) SetEffort(effort codec.Effort) { e.effort.Store(uint32(effort)) }

// Rest gives back the compressor and all memory that an idle flow does not need.
func (e *Encoder) Rest() {
	e.work.Lock()
	defer e.work.Unlock()
	e.pack.Rest()
	e.out.bytes = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.sent.rest()
	}
	if len(e.declared) == 0 {
		e.declared = nil
	}
}

// Unacked returns the raw bytes that are not acknowledged.
func (e *Encoder) Unacked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sent.unacked()
}

// Close ends the direction. What is not acknowledged is never referred to. Nothing but Close, Ack, Reason and Counters may follow.
func (e *Encoder) Close() {
	e.work.Lock()
	defer e.work.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.pack.Rest()
	if e.cache != nil {
		e.cache.disown(e.flow, e.declared[e.known:])
		e.search.keepTail(e.sent.unacked() == 0)
		e.cache.close()
	}
	e.declared, e.known = nil, 0
	e.out.bytes = nil
	e.sent.close()
}
