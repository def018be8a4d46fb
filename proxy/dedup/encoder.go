// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/history"
)

// Options change how an encoder works.
type Options struct {
	NoCompression bool // literals go raw
}

// Counters are running totals of a leg's direction, in bytes.
type Counters struct {
	RawBytes     uint64 // taken in
	WireBytes    uint64 // payloads given out, restarts included
	RefBytes     uint64 // raw bytes that were sent as references
	LiteralBytes uint64 // raw bytes that were not
}

// An Encoder turns one direction of a flow into blocks. Encode and Resend must reach the wire in the order in which they
// were called, so they are best called by the one goroutine that writes to the leg; Ack, Unacked, Reason and Counters may be
// called from any.
type Encoder struct {
	opt Options
	leg *history.Leg // nil: no history

	work      sync.Mutex // held while a block is encoded or sent again
	match     matcher
	zip       deflater
	sniff     sniffer
	probe     backoff
	lits      []byte
	placed    bool // the peer knows generation and end
	gen       uint64
	end       uint64 // end of the last recorded block
	ref       uint64 // end of the last reference
	asked     uint64 // blocks below it were asked for once
	encrypted atomic.Bool
	closed    bool

	mu      sync.Mutex // guards what Ack changes; taken after work
	blocks  []sent     // blocks[done:] are not acknowledged, oldest first
	done    int        // the others are dropped now and then
	first   uint64     // number of blocks[done]
	unacked int
	askable int // blocks among them that the peer may ask for
	spare   [][]byte

	raw, wire, refs, literals atomic.Uint64
}

// sent is a block that is not acknowledged.
type sent struct {
	n       int
	pos     uint64 // 0: not recorded
	data    []byte // its bytes if not recorded; nil if nobody will ask for them
	askable bool
}

// NewEncoder makes an encoder for a leg. Without a log (nil) it only compresses.
func NewEncoder(s *history.Sender, opt Options) *Encoder {
	e := &Encoder{opt: opt}
	if s != nil {
		e.leg = s.Leg()
		e.match.leg, e.match.log = e.leg, s
	}
	return e
}

// Encode appends the payload of one block for src, 1 to MaxBlock bytes, to dst.
func (e *Encoder) Encode(dst, src []byte) []byte {
	e.work.Lock()
	defer e.work.Unlock()
	if e.sniff.encrypted(src) {
		e.encrypted.Store(true)
	}
	number := e.next()
	p, recorded := history.Place{}, false
	if e.leg != nil && !e.encrypted.Load() {
		p, recorded = e.leg.Record(src)
	}
	ops := []op(nil)
	if recorded {
		e.match.run(src, p)
		ops = e.match.ops
	} else {
		e.match.skip(src)
	}
	start := len(dst)
	dst, zipped := e.payload(dst, src, ops, p, recorded)
	pl := place{number: number, recorded: recorded, generation: p.Generation, pos: p.Pos}
	dst = appendCheck(dst, pl.check(src), checkSize(len(src), false))
	if recorded {
		e.leg.Sent()
	}
	e.keep(src, p.Pos, recorded, zipped)
	refs := 0
	if recorded {
		refs = e.match.matched
	}
	e.raw.Add(uint64(len(src)))
	e.wire.Add(uint64(len(dst) - start))
	e.refs.Add(uint64(refs))
	e.literals.Add(uint64(len(src) - refs))
	return dst
}

// payload appends all of a block but its check. zipped tells that the block's literals went through the zstd stream.
func (e *Encoder) payload(dst, src []byte, ops []op, p history.Place, recorded bool) (_ []byte, zipped bool) {
	start := len(dst)
	flags := byte(0)
	dst = append(dst, 0)
	if recorded {
		flags |= flagRecorded
		switch {
		case !e.placed || e.gen != p.Generation:
			flags |= flagPlace
			dst = appendPlace(dst, p.Generation, p.Pos)
			e.placed, e.gen, e.ref = true, p.Generation, p.Pos
		case p.Pos != e.end:
			flags |= flagGap
			dst = binary.AppendUvarint(dst, p.Pos-e.end)
		}
		e.end = p.Pos + uint64(len(src))
	}
	dst = binary.AppendUvarint(dst, uint64(len(src)))
	lits := src
	switch {
	case len(ops) == 1 && ops[0].lit == 0:
		lits = nil
		dst = e.appendRef(dst, ops[0])
	case len(ops) > 1 || len(ops) == 1 && ops[0].n > 0:
		flags |= flagOps
		dst, lits = e.appendOps(dst, src, ops)
	}
	if len(lits) > 0 {
		if dst, zipped = e.appendLiterals(dst, lits); zipped {
			flags |= flagZstd
		} else {
			flags |= flagRaw
		}
	}
	dst[start] = flags
	return dst, zipped
}

func appendPlace(dst []byte, generation, pos uint64) []byte {
	return binary.AppendUvarint(binary.LittleEndian.AppendUint64(dst, generation), pos)
}

func (e *Encoder) appendRef(dst []byte, o op) []byte {
	dst = appendVarint(dst, int64(o.pos-e.ref))
	e.ref = o.pos + uint64(o.n)
	return dst
}

// appendOps appends the operations and gathers the literals.
func (e *Encoder) appendOps(dst, src []byte, ops []op) (_, lits []byte) {
	lits = e.lits[:0]
	at := 0
	for _, o := range ops {
		dst = binary.AppendUvarint(dst, uint64(o.lit))
		lits = append(lits, src[at:at+o.lit]...)
		at += o.lit + o.n
		if o.n > 0 {
			dst = binary.AppendUvarint(dst, uint64(o.n))
			dst = e.appendRef(dst, o)
		}
	}
	e.lits = lits
	return dst, lits
}

// appendLiterals appends literals, compressed where that promises to pay.
func (e *Encoder) appendLiterals(dst, lits []byte) (_ []byte, zipped bool) {
	if e.opt.NoCompression || e.encrypted.Load() || !e.probe.try(len(lits)) {
		return append(dst, lits...), false
	}
	start := len(dst)
	dst = e.zip.add(dst, lits)
	e.probe.result(len(lits), len(dst)-start)
	return dst, true
}

// keep notes a block as sent, with its bytes if they may be asked for and are not in the log.
func (e *Encoder) keep(src []byte, pos uint64, recorded, zipped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := sent{n: len(src), pos: pos, askable: recorded || zipped}
	if b.askable {
		e.askable++
	}
	// A raw block without history cannot go wrong, but it has to be sent again when one before it is asked for.
	if !recorded && e.askable > 0 {
		if k := len(e.spare) - 1; k >= 0 {
			b.data, e.spare = e.spare[k], e.spare[:k]
		}
		b.data = append(b.data[:0], src...)
	}
	e.blocks = append(e.blocks, b)
	e.unacked += b.n
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
		if b.pos != 0 {
			e.leg.Acknowledge(b.pos, b.n)
		}
		if b.askable {
			e.askable--
		}
		if b.data != nil && len(e.spare) < 2 {
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

// Reason tells why the flow gains nothing: Encrypted, Incompressible, or None.
func (e *Encoder) Reason() reason.Code {
	const enough = 64 << 10 // bytes after which a judgement is fair
	raw, wire := e.raw.Load(), e.wire.Load()
	switch {
	case e.encrypted.Load():
		return reason.Encrypted
	case raw >= enough && e.refs.Load() == 0 && wire > raw-raw/32:
		return reason.Incompressible
	}
	return reason.None
}

// Counters returns the totals so far.
func (e *Encoder) Counters() Counters {
	return Counters{RawBytes: e.raw.Load(), WireBytes: e.wire.Load(), RefBytes: e.refs.Load(), LiteralBytes: e.literals.Load()}
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
	e.zip.close()
	e.blocks, e.done, e.spare, e.unacked = nil, 0, nil, 0
}

var errNotHeld = errors.New("block is no longer held")
