// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/internal/sniff"
	"github.com/trunkline/trunkline/proxy/history"
)

// Options change how an encoder works.
type Options struct {
	Stage codec.Stage // what compresses literals
}

// An Encoder turns one direction of a flow into blocks. Encode and Resend must reach the wire in the order in which they
// were called, so they are best called by the one goroutine that writes to the leg; Ack, Unacked, Reason and Counters may be
// called from any.
type Encoder struct {
	sniff.Tally

	opt Options
	leg *history.Leg // nil: no history

	work    sync.Mutex // held while a block is encoded or sent again
	match   matcher
	zip     packer
	model   *model    // nil: there is none now
	encoded time.Time // when a block was last encoded
	begun   uint64    // where the log ended when the compressed stream began
	tail    tail
	effort  atomic.Uint32
	sniff   sniff.Sniffer
	probe   sniff.Backoff // of the compressed stream
	few     sniff.Backoff // of the model
	lits    []byte
	placed  bool // the peer knows generation and end
	gen     uint64
	end     uint64 // end of the last recorded block
	ref     uint64 // end of the last reference
	asked   uint64 // blocks below it were asked for once
	closed  bool

	mu      sync.Mutex // guards what Ack changes; taken after work
	blocks  []sent     // blocks[done:] are not acknowledged, oldest first
	done    int        // the others are dropped now and then
	first   uint64     // number of blocks[done]
	unacked int
	askable int // blocks among them that the peer may ask for
	spare   [][]byte
}

// sent is a block that is not acknowledged.
type sent struct {
	n       int
	pos     uint64       // 0: not recorded
	gen     uint64       // of the history; 0: has nothing to do with it
	data    []byte       // its bytes if not recorded; nil if nobody will ask for them
	give    func([]byte) // gives data back to whom it is from; nil: it is a copy
	pinned  bool
	askable bool
}

// NewEncoder makes an encoder for a leg. Without a log (nil) it only compresses.
func NewEncoder(s *history.Sender, opt Options) *Encoder {
	e := &Encoder{opt: opt, zip: packer{stage: opt.Stage}}
	e.effort.Store(uint32(codec.EffortDefault))
	if s != nil {
		e.leg = s.Leg()
		e.match.leg, e.match.log, e.match.fresh = e.leg, s, true
	}
	return e
}

// Encode appends the payload of one block for src, 1 to codec.MaxBlock bytes, to dst.
func (e *Encoder) Encode(dst, src []byte) []byte {
	dst, _ = e.EncodeTaking(dst, src, nil)
	return dst
}

// EncodeTaking is Encode; it may keep src until it calls give, unless that is nil.
func (e *Encoder) EncodeTaking(dst, src []byte, give func([]byte)) (out []byte, taken bool) {
	e.work.Lock()
	defer e.work.Unlock()
	if e.sniff.Encrypted(src) {
		e.SetEncrypted()
	}
	now := time.Now()
	if now.Sub(e.encoded) > restAfter {
		e.forget()
	}
	e.encoded = now
	number := e.next()
	b := outgoing{src: src}
	if cap(src) <= 4*len(src) { // else a copy holds much less
		b.give = give
	}
	if e.leg != nil && !e.Encrypted() {
		e.match.prepare()
		e.refer(&b)
	} else {
		e.match.skip(src)
	}
	start := len(dst)
	dst = e.payload(dst, &b)
	b.place.number = number
	dst = appendCheck(dst, b.place.mix(e.match.sum()), checkSize(len(src), false))
	if b.pinned {
		e.leg.Done()
	}
	taken = e.keep(&b)
	e.tidy()
	e.Count(len(src), len(dst)-start, b.refs)
	return dst, taken
}

// tidy gives back what the block needed while it was encoded, if it is large: flows share that.
func (e *Encoder) tidy() {
	if cap(e.lits) >= largeBlock {
		give(e.lits)
		e.lits = nil
	}
	e.match.tidy()
}

// outgoing is a block that is being encoded.
type outgoing struct {
	src    []byte
	give   func([]byte) // gives src back if it is kept; nil: it is not to be kept
	place  place
	pinned bool
	ops    []op // nil: all literals
	refs   int  // bytes in references
	form   form
}

// refer finds what of a block the peer holds, and records the block unless nothing is gained by that: a block that only
// repeats what is in the log in large pieces, and will be there for long, would push out other data.
func (e *Encoder) refer(b *outgoing) {
	at := e.leg.Begin()
	b.pinned = true
	if e.level() == codec.EffortRaw {
		e.match.note(b.src, at)
	} else {
		e.match.near = e.compressed(at.Head)
		e.match.run(b.src, at)
	}
	b.ops, b.refs = e.match.ops, e.match.matched
	b.place.generation, b.place.pos = at.Generation, at.Head
	b.place.refers = b.refs > 0
	if b.refs == len(b.src) && !e.match.stale && len(b.ops) <= 1+len(b.src)>>16 {
		return
	}
	if pos, ok := e.leg.Record(b.src); ok {
		b.place.recorded, b.place.pos = true, pos
		e.match.enter(pos)
	}
}

// payload appends all of a block but its check.
func (e *Encoder) payload(dst []byte, b *outgoing) []byte {
	start := len(dst)
	flags := byte(0)
	dst = append(dst, 0)
	p := &b.place
	if (p.recorded || p.refers) && (!e.placed || e.gen != p.generation) {
		flags |= flagPlace
		dst = appendPlace(dst, p.generation, p.pos)
		e.placed, e.gen, e.end, e.ref = true, p.generation, p.pos, p.pos
	}
	if p.recorded {
		flags |= flagRecorded
		if p.pos != e.end {
			flags |= flagGap
			dst = binary.AppendUvarint(dst, p.pos-e.end)
		}
		e.end = p.pos + uint64(len(b.src))
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.src)))
	lits := b.src
	switch {
	case len(b.ops) == 1 && b.refs == len(b.src):
		lits = nil
		dst = e.appendRef(dst, b.ops[0])
	case b.refs > 0:
		flags |= flagOps
		dst = e.appendOps(dst, b)
		switch n := len(b.src) - b.refs; {
		case n == 0:
			lits = nil
		case e.plain():
			dst, lits, b.form = b.appendLiterals(dst), nil, formRaw
		default:
			e.lits = sized(e.lits, n)
			lits = b.appendLiterals(e.lits[:0])
		}
	}
	if len(lits) > 0 {
		dst, b.form = e.appendLiterals(dst, lits)
	}
	dst[start] = flags | byte(b.form)<<formShift
	return dst
}

func appendPlace(dst []byte, generation, pos uint64) []byte {
	return binary.AppendUvarint(binary.LittleEndian.AppendUint64(dst, generation), pos)
}

func (e *Encoder) appendRef(dst []byte, o op) []byte {
	dst = appendVarint(dst, int64(o.pos-e.ref))
	e.ref = o.pos + uint64(o.n)
	return dst
}

func (e *Encoder) appendOps(dst []byte, b *outgoing) []byte {
	for _, o := range b.ops {
		dst = binary.AppendUvarint(dst, uint64(o.lit))
		if o.n > 0 {
			dst = binary.AppendUvarint(dst, uint64(o.n))
			dst = e.appendRef(dst, o)
		}
	}
	return dst
}

// appendLiterals appends what the operations do not refer to.
func (b *outgoing) appendLiterals(dst []byte) []byte {
	at := 0
	for _, o := range b.ops {
		dst = append(dst, b.src[at:at+o.lit]...)
		at += o.lit + o.n
	}
	return dst
}

// keep notes a block as sent, with its bytes if they may be asked for and are not in the log. It tells whether it took the
// block's own.
func (e *Encoder) keep(o *outgoing) (taken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := sent{n: len(o.src), gen: o.place.generation, pinned: o.pinned, askable: o.form.packed() || o.place.refers || o.place.recorded}
	if b.askable {
		e.askable++
	}
	if o.place.recorded {
		b.pos = o.place.pos
	} else if e.askable > 0 {
		// A raw block without history cannot go wrong, but it has to be sent again when one before it is asked for.
		if o.give != nil {
			b.data, b.give = o.src, o.give
		} else {
			if k := len(e.spare) - 1; k >= 0 {
				b.data, e.spare = e.spare[k], e.spare[:k]
			}
			b.data = sized(b.data, len(o.src))
			copy(b.data, o.src)
		}
	}
	e.blocks = append(e.blocks, b)
	e.unacked += b.n
	return b.give != nil
}

func (e *Encoder) next() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first + uint64(len(e.blocks)-e.done)
}

// Ack tells that the peer has decoded and stored all blocks numbered below decoded.
func (e *Encoder) Ack(decoded uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.done < len(e.blocks) && e.first < decoded {
		b := &e.blocks[e.done]
		switch {
		case b.pos != 0:
			e.leg.Acknowledge(b.pos, b.n)
		case b.pinned:
			e.leg.Acknowledge(0, 0)
		}
		if b.askable {
			e.askable--
		}
		switch {
		case b.give != nil:
			b.give(b.data)
		case b.data != nil && len(e.spare) < 2:
			e.spare = append(e.spare, b.data)
		}
		e.unacked -= b.n
		*b = sent{}
		e.done++
		e.first++
	}
	if e.done*2 >= len(e.blocks) {
		m := copy(e.blocks, e.blocks[e.done:])
		clear(e.blocks[m:])
		e.blocks, e.done = e.blocks[:m], 0
	}
}

// at returns a block that is not acknowledged.
func (e *Encoder) at(number uint64) (sent, bool) {
	if number < e.first || number-e.first >= uint64(len(e.blocks)-e.done) {
		return sent{}, false
	}
	return e.blocks[e.done+int(number-e.first)], true
}

// Unacked returns the raw bytes that are not acknowledged.
func (e *Encoder) Unacked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unacked
}

// Close ends the leg. What is not acknowledged is never referred to. Nothing but Close, Ack, Reason and Counters may follow.
func (e *Encoder) Close() {
	e.work.Lock()
	defer e.work.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	if e.leg != nil {
		e.leg.Close()
	}
	e.shrink()
	e.tail = tail{}
	e.blocks, e.done, e.spare, e.unacked = nil, 0, nil, 0
}

var errNotHeld = errors.New("block is no longer held")
