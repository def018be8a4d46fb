// SPDX-License-Identifier: Apache-2.0

package native

import (
	"errors"
	"fmt"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

var errCheck = errors.New("the check does not fit")

// A Decoder turns the blocks of one leg into bytes again. It belongs to one goroutine.
type Decoder struct {
	log    *history.Receiver // nil: no history
	unzip  inflater
	next   uint64 // number of the next block
	asking bool
	placed bool
	gen    uint64
	end    uint64
	ref    uint64
	out    []byte
	lits   []byte
	ops    []op
}

// NewDecoder makes a decoder for a leg that carries a flow of this group. Without logs (nil) it follows no references.
func NewDecoder(r *history.Receivers, group string) *Decoder {
	d := &Decoder{}
	if r != nil {
		d.log = r.Open(group)
	}
	return d
}

// Decoded returns the number of blocks decoded and stored so far: what to acknowledge.
func (d *Decoder) Decoded() uint64 { return d.next }

// Rest does nothing yet.
func (d *Decoder) Rest() {}

// Close gives back what the decoder holds.
func (d *Decoder) Close() {
	d.unzip.close()
	if d.log != nil {
		d.log.Close()
		d.log = nil
	}
	d.out, d.lits, d.ops = nil, nil, nil
}

// Decode returns the bytes of the next block, which are valid until the next call. With an *codec.AskError the caller asks the
// peer for the block and goes on: payloads that cannot be used until it has come are dropped (nil, nil). After any other
// error the flow has to be reset.
func (d *Decoder) Decode(payload []byte) ([]byte, error) {
	if len(payload) == 0 || len(payload) > codec.MaxPayload {
		return nil, fmt.Errorf("payload of %d bytes: %w", len(payload), errFormat)
	}
	if d.asking && payload[0]&flagRestart == 0 {
		return nil, nil
	}
	b, err := d.parse(payload)
	if err != nil {
		return nil, err
	}
	data, err := d.build(b)
	if err == nil && !checkFits(b.check, b.place.check(data)) {
		err = errCheck
	}
	if err != nil {
		if b.restart {
			return nil, fmt.Errorf("restart of block %d: %w", d.next, err)
		}
		d.asking = true
		return nil, &codec.AskError{Ask: codec.Ask{Block: d.next, Retire: b.retire(err)}, Err: err}
	}
	if b.place.recorded && d.log != nil {
		d.log.Write(b.place.generation, b.place.pos, data)
	}
	d.asking = false
	d.next++
	return data, nil
}

// block is a payload taken apart.
type block struct {
	place   place
	restart bool
	zstd    bool
	n       int // raw bytes
	refs    int // of them, referred to
	lits    []byte
	check   []byte
}

// retire tells whether an error means that the histories differ. A single range that is gone does not: a block that comes late
// may refer to what has been overwritten since.
func (b *block) retire(err error) bool {
	return errors.Is(err, history.ErrGeneration) || errors.Is(err, errCheck) && b.refs > 0
}

// parse takes a payload apart, and checks every length before it is used.
func (d *Decoder) parse(payload []byte) (b block, err error) {
	flags, r := payload[0], reader{b: payload[1:]}
	b.place.number, b.place.recorded = d.next, flags&flagRecorded != 0
	b.restart, b.zstd = flags&flagRestart != 0, flags&flagZstd != 0
	if flags&^flagsKnown != 0 || b.restart && (flags&flagRaw == 0 || flags&(flagGap|flagZstd|flagOps) != 0) {
		return b, fmt.Errorf("flags %#x: %w", flags, errFormat)
	}
	if b.restart {
		if n := r.uvarint(); n != d.next {
			return b, fmt.Errorf("restart of block %d instead of %d: %w", n, d.next, errFormat)
		}
		d.unzip.live, d.placed = false, false
	}
	d.parsePlace(&r, flags, &b.place)
	b.n = r.size(codec.MaxBlock)
	if b.place.recorded {
		d.end = b.place.pos + uint64(b.n)
		r.bad = r.bad || d.end > history.MaxPos || !d.placed
	}
	d.parseOps(&r, flags, &b)
	b.place.refers = b.refs > 0
	size := checkSize(b.n, b.restart)
	if r.bad || b.n == 0 || len(r.b) < size {
		return b, fmt.Errorf("header of block %d: %w", d.next, errFormat)
	}
	b.lits, b.check = r.b[:len(r.b)-size], r.b[len(r.b)-size:]
	lits := b.n - b.refs
	form := flags & (flagRaw | flagZstd)
	switch {
	case b.refs > 0 && !d.placed,
		lits == 0 && (form != 0 || len(b.lits) != 0),
		lits > 0 && form != flagRaw && form != flagZstd,
		form == flagRaw && len(b.lits) != lits:
		return b, fmt.Errorf("literals of block %d: %w", d.next, errFormat)
	}
	return b, nil
}

func (d *Decoder) parsePlace(r *reader, flags byte, p *place) {
	if flags&flagPlace != 0 {
		d.gen, d.end = r.uint64(), r.uvarint()
		d.ref, d.placed = d.end, true
	}
	if flags&flagGap != 0 {
		gap := r.uvarint()
		if gap > history.MaxPos {
			r.bad = true
			return
		}
		d.end += gap
	}
	p.generation, p.pos = d.gen, d.end
	r.bad = r.bad || p.pos > history.MaxPos || flags&flagGap != 0 && !p.recorded
}

// parseOps reads the operations into d.ops.
func (d *Decoder) parseOps(r *reader, flags byte, b *block) {
	d.ops = d.ops[:0]
	if flags&flagOps == 0 {
		if flags&(flagRaw|flagZstd) != 0 {
			d.ops = append(d.ops, op{lit: b.n})
			return
		}
		b.refs = b.n
		d.ops = append(d.ops, op{n: b.n, pos: d.parseRef(r, b.n)})
		return
	}
	for left := b.n; left > 0 && !r.bad; {
		o := op{lit: r.size(left)}
		if left -= o.lit; left > 0 {
			o.n = r.size(left)
			r.bad = r.bad || o.n == 0
			o.pos = d.parseRef(r, o.n)
			left -= o.n
		}
		b.refs += o.n
		d.ops = append(d.ops, o)
	}
}

func (d *Decoder) parseRef(r *reader, n int) uint64 {
	pos := d.ref + uint64(r.varint())
	if pos > history.MaxPos {
		r.bad = true
	}
	d.ref = pos + uint64(n)
	return pos
}

// build makes the block's bytes in d.out.
func (d *Decoder) build(b block) ([]byte, error) {
	d.out = sized(d.out, b.n)
	lits := b.lits
	if b.zstd {
		whole := d.out
		if b.refs > 0 {
			d.lits = sized(d.lits, b.n-b.refs)
			whole = d.lits
		}
		if err := d.unzip.take(whole, b.lits); err != nil {
			return nil, err
		}
		if lits = whole; b.refs == 0 {
			return d.out, nil
		}
	}
	at := 0
	for _, o := range d.ops {
		copy(d.out[at:at+o.lit], lits)
		lits = lits[o.lit:]
		at += o.lit
		if o.n == 0 {
			continue
		}
		if d.log == nil {
			return nil, history.ErrGeneration
		}
		if err := d.log.Read(b.place.generation, o.pos, d.out[at:at+o.n]); err != nil {
			return nil, err
		}
		at += o.n
	}
	return d.out, nil
}

// sized returns a slice of n bytes, in b if that is large enough.
func sized(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	// In steps, so that a leg of small messages holds little.
	return make([]byte, n, min(codec.MaxBlock, max(4<<10, n+n/4)))
}
