// SPDX-License-Identifier: Apache-2.0

package native

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

var errCheck = errors.New("the check does not fit")

// A Decoder turns the blocks of one leg into bytes again. It belongs to one goroutine.
type Decoder struct {
	log *history.Receiver // nil: no history

	mu     sync.Mutex // guards all below: Rest comes from other goroutines
	unzip  unpacker
	model  *model // nil: there is none now
	tail   tail
	next   uint64 // number of the next block
	asking bool
	placed bool
	gen    uint64
	end    uint64
	ref    uint64
	out    []byte
	lits   []byte
	ops    []op
	hash   xxhash.Digest
	hashed int // bytes of out that are in hash
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

// Rest gives back what the decoder can build again, because the flow is idle. It may be called from any goroutine.
func (d *Decoder) Rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shrink()
}

func (d *Decoder) shrink() {
	d.forget()
	d.unzip.rest()
	give(d.lits)
	d.out, d.lits, d.ops = nil, nil, nil
}

// forget gives the model back and ends the compressed stream.
func (d *Decoder) forget() {
	d.unzip.live = false
	if d.model != nil {
		models.Put(d.model)
		d.model = nil
	}
}

// Close gives back what the decoder holds.
func (d *Decoder) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	give(d.out) // nobody reads it any more, unlike when the flow rests
	d.shrink()
	d.tail = tail{}
	if d.log != nil {
		d.log.Close()
		d.log = nil
	}
}

// Decode returns the bytes of the next block, which are valid until the next call. With an *codec.AskError the caller asks the
// peer for the block and goes on: payloads that cannot be used until it has come are dropped (nil, nil). After any other
// error the flow has to be reset.
func (d *Decoder) Decode(payload []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	if err == nil && !checkFits(b.check, b.place.mix(d.sum())) {
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
	form    form
	prime   int // bytes that prime the stream that begins
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
	b.restart, b.form = flags&flagRestart != 0, formOf(flags)
	if b.restart && (b.form != formRaw || flags&(flagGap|flagOps) != 0) {
		return b, fmt.Errorf("flags %#x: %w", flags, errFormat)
	}
	if b.restart {
		if n := r.uvarint(); n != d.next {
			return b, fmt.Errorf("restart of block %d instead of %d: %w", n, d.next, errFormat)
		}
		d.forget()
		d.placed = false
		d.tail.clear()
	}
	d.parsePlace(&r, flags, &b.place)
	b.n = r.size(codec.MaxBlock)
	if b.place.recorded {
		d.end = b.place.pos + uint64(b.n)
		r.bad = r.bad || d.end > history.MaxPos || !d.placed
	}
	d.parseOps(&r, flags, &b)
	if b.form.fresh() {
		b.prime = r.size(d.tail.len())
	}
	b.place.refers = b.refs > 0
	size := checkSize(b.n, b.restart)
	if r.bad || b.n == 0 || len(r.b) < size {
		return b, fmt.Errorf("header of block %d: %w", d.next, errFormat)
	}
	b.lits, b.check = r.b[:len(r.b)-size], r.b[len(r.b)-size:]
	lits := b.n - b.refs
	switch {
	case b.refs > 0 && !d.placed,
		(lits == 0) != (b.form == formNone),
		lits == 0 && len(b.lits) != 0,
		b.form == formRaw && len(b.lits) != lits,
		b.form >= formModel && (lits > modelMost || b.prime > modelPrime):
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
		if b.form != formNone {
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
	d.hash.Reset()
	d.hashed = 0
	lits := b.lits
	if b.form.packed() {
		whole := d.out
		if b.refs > 0 {
			d.lits = sized(d.lits, b.n-b.refs)
			whole = d.lits
		}
		if err := d.unpack(whole, b); err != nil {
			return nil, err
		}
		lits = whole
	}
	if !b.restart {
		d.tail.add(lits)
	}
	if b.form.packed() && b.refs == 0 {
		return d.out, nil
	}
	return d.out, d.join(b, lits)
}

// unpack fills dst with what the literals of a block stand for.
func (d *Decoder) unpack(dst []byte, b block) error {
	var prime []byte
	if b.prime > 0 {
		prime = d.tail.last(b.prime)
	}
	var err error
	switch b.form {
	case formModelNew:
		if d.model != nil {
			models.Put(d.model)
		}
		d.model = newModel(prime)
	case formZstd:
		err = d.unzip.begin(codec.Zstd, prime)
	case formZlib:
		err = d.unzip.begin(codec.Zlib, prime)
	}
	switch {
	case err != nil:
		return err
	case b.form < formModel:
		return d.unzip.take(dst, b.lits, b.form == formShort)
	case d.model == nil:
		return errRested
	}
	d.model.decode(dst, b.lits)
	return nil
}

// join puts literals and what the history holds together. It hashes the bytes while they are in the processor's near caches.
func (d *Decoder) join(b block, lits []byte) error {
	at := 0
	for _, o := range d.ops {
		copy(d.out[at:at+o.lit], lits)
		lits = lits[o.lit:]
		at += o.lit
		if o.n > 0 && d.log == nil {
			return history.ErrGeneration
		}
		for end := at + o.n; at < end; {
			n := min(end-at, joinStride)
			if err := d.log.Read(b.place.generation, o.pos, d.out[at:at+n]); err != nil {
				return err
			}
			o.pos += uint64(n)
			if at += n; at-d.hashed >= joinStride/2 {
				d.digest(at)
			}
		}
	}
	return nil
}

// joinStride is how many bytes are copied before they are hashed.
const joinStride = 64 << 10

func (d *Decoder) digest(to int) {
	_, _ = d.hash.Write(d.out[d.hashed:to])
	d.hashed = to
}

// sum returns the hash of the whole block.
func (d *Decoder) sum() uint64 {
	if d.hashed == 0 {
		return xxhash.Sum64(d.out)
	}
	d.digest(len(d.out))
	return d.hash.Sum64()
}
