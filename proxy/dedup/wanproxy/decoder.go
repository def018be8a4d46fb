// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/stage"
)

// What a decoder waits for.
type waiting uint8

const (
	forNothing waiting = iota
	forSegments
	forRaw
)

// A Decoder turns the payloads of one direction of a flow into bytes again.
type Decoder struct {
	mu      sync.Mutex
	cache   *shared // nil: nothing is kept
	size    int     // bytes of a segment
	over    bool
	unpack  stage.Unpacker
	next    uint64 // number of the next block
	total   int64  // bytes given out, and in the blocks before the one that is being made
	back    int    // bytes of out that were given out before
	out     []byte // the last bytes of the flow, and the new ones
	gap     int    // as the encoder's
	carry   rest
	spare   []byte // for the next carry
	buf     []byte // commands of a packed payload
	waits   waiting
	held    []held
	heldIn  int // bytes
	learned map[uint64][]byte
}

// A rest is what of a segment belongs to the payloads to come.
type rest struct {
	segment []byte
	used    int
}

func (r *rest) left() []byte { return r.segment[r.used:] }

// held is a payload that waits.
type held struct {
	p   payload
	err error // it cannot be made; what came behind it was dropped
}

// NewDecoder makes a decoder for a flow of a group. Without caches (nil) it keeps nothing.
func NewDecoder(c *Caches, group string, s codec.Spec) *Decoder {
	d := &Decoder{size: s.Segment(), over: s.Kind == codec.WANProxy2, unpack: stage.NewUnpacker(s.Stage)}
	if c != nil {
		d.cache = c.open(group, d.size)
	}
	return d
}

// Decoded returns the number of payloads turned into bytes so far: what to acknowledge.
func (d *Decoder) Decoded() uint64 { return d.next }

// Rest gives back the decompressor and all memory that an idle flow does not need.
func (d *Decoder) Rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waits != forNothing || len(d.held) > 0 {
		return
	}
	d.unpack.Rest()
	// What was given out last may still be read.
	keep := min(len(d.out), 2*d.size)
	d.out, d.back = append(make([]byte, 0, keep), d.out[len(d.out)-keep:]...), keep
	d.buf, d.spare = nil, nil
	if len(d.carry.left()) == 0 {
		d.carry = rest{}
	}
}

// Close gives back all that the decoder holds.
func (d *Decoder) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unpack.Rest()
	if d.cache != nil {
		if overlaps(d.over, d.gap, d.total, d.size) && len(d.out) >= d.size && d.waits == forNothing {
			d.cache.put(d.out[len(d.out)-d.size:])
		}
		d.cache.close()
		d.cache = nil
	}
	d.out, d.buf, d.spare, d.held, d.learned, d.carry, d.gap = nil, nil, nil, nil, nil, rest{}, 0
}

// Decode returns the bytes that a payload leads to, valid until the next call; see codec.Decoder.
func (d *Decoder) Decode(b []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(b) == 0 || len(b) > codec.MaxPayload {
		return nil, fmt.Errorf("payload of %d bytes: %w", len(b), errFormat)
	}
	d.settle()
	if b[0]&flagAnswer != 0 {
		return d.answer(b)
	}
	if d.waits == forRaw || len(d.held) > 0 && d.held[len(d.held)-1].err != nil {
		return nil, nil
	}
	p, err := d.parse(b)
	if errors.Is(err, errFormat) {
		return nil, fmt.Errorf("block %d: %w", d.next+uint64(len(d.held)), err)
	}
	if len(d.held) > 0 {
		if err != nil {
			p = payload{}
		}
		if err := d.hold(p, err); err != nil || d.waits != forNothing {
			return nil, err
		}
		return d.goOn()
	}
	if err == nil {
		err = d.make(&p, d.next)
	}
	if err == nil {
		return d.out[d.back:], nil
	}
	if !errors.Is(err, errAbsent) {
		return nil, d.ask(err)
	}
	if err := d.hold(p, nil); err != nil {
		return nil, err
	}
	return d.goOn()
}

// settle drops what was given out, but for as many bytes as segments reach back.
func (d *Decoder) settle() {
	keep := min(len(d.out), 2*d.size)
	copy(d.out, d.out[len(d.out)-keep:])
	d.out, d.back = d.out[:keep], keep
}

// ask makes the ask for what err says about the next block.
func (d *Decoder) ask(err error) error {
	if errors.Is(err, errFormat) {
		return fmt.Errorf("block %d: %w", d.next, err)
	}
	ask := codec.Ask{Block: d.next}
	if detail := d.wanted(); errors.Is(err, errAbsent) && len(detail) > askBytes {
		d.waits = forSegments
		ask.Detail = detail
		// A cache that never was full has dropped nothing: the peer remembers what was sent to another one.
		ask.Retire = d.cache == nil || !d.cache.full()
	} else {
		d.waits = forRaw
		d.release()
		ask.Retire = errors.Is(err, errCheck)
	}
	return &codec.AskError{Ask: ask, Err: err}
}

// hold keeps a payload until those before it can be made.
func (d *Decoder) hold(p payload, err error) error {
	if d.heldIn += len(p.commands) + len(p.check); d.heldIn > maxHeld {
		return fmt.Errorf("%d bytes wait for block %d: %w", d.heldIn, d.next, errFormat)
	}
	both := append(append(make([]byte, 0, len(p.commands)+len(p.check)), p.commands...), p.check...)
	p.commands, p.check = both[:len(p.commands):len(p.commands)], both[len(p.commands):]
	d.held = append(d.held, held{p, err})
	return nil
}

// release drops what waits.
func (d *Decoder) release() {
	d.held, d.heldIn, d.learned = nil, 0, nil
}

// goOn makes blocks of what waits, until moreBytes are there or something is missing.
func (d *Decoder) goOn() ([]byte, error) {
	for tries := 0; len(d.held) > 0 && len(d.out)-d.back < moreBytes; {
		h := d.held[0]
		err := h.err
		if err == nil {
			err = d.make(&h.p, d.next)
		}
		if errors.Is(err, errAbsent) && tries < mostTries && len(d.wanted()) == askBytes {
			tries++ // what was missing has come with another flow meanwhile
			continue
		}
		if err != nil {
			if len(d.out) > d.back {
				break // another payload will come: the encoder sends enough of them
			}
			return nil, d.ask(err)
		}
		d.heldIn -= len(h.p.commands) + len(h.p.check)
		d.held[0] = held{}
		d.held = d.held[1:]
	}
	if len(d.held) == 0 {
		d.release()
	}
	if len(d.out) == d.back {
		return nil, nil
	}
	return d.out[d.back:], nil
}

// answer takes the encoder's answer to an ask.
func (d *Decoder) answer(b []byte) ([]byte, error) {
	r := reader{b: b[1:]}
	switch b[0] {
	case answerLearn:
		if d.waits != forSegments {
			return nil, fmt.Errorf("segments that were not asked for: %w", errFormat)
		}
		if err := d.learn(&r); err != nil {
			return nil, err
		}
		d.waits = forNothing
		return d.goOn()
	case answerMore:
		if len(r.b) > 0 {
			return nil, errFormat
		}
		if d.waits != forNothing {
			return nil, nil
		}
		return d.goOn()
	case answerRaw:
		return d.takeRaw(b[1:])
	}
	return nil, fmt.Errorf("answer %#x: %w", b[0], errFormat)
}

// learn takes segments that were asked for.
func (d *Decoder) learn(r *reader) error {
	if d.learned == nil || len(d.learned) > 2*codec.MaxBlock/d.size+maxAsked {
		d.learned = make(map[uint64][]byte)
	}
	for len(r.b) > 0 {
		command, h := r.take(2), r.hash()
		segment := r.take(d.size)
		if r.bad || command[0] != magic || command[1] != opLearn || sum(segment) != h {
			return fmt.Errorf("segments of block %d: %w", d.next, errFormat)
		}
		d.learned[h] = append([]byte(nil), segment...)
		if d.cache != nil {
			d.cache.put(segment)
		}
	}
	return nil
}

// takeRaw takes a block that comes again raw, whatever was asked for.
func (d *Decoder) takeRaw(b []byte) ([]byte, error) {
	number, n := binary.Uvarint(b)
	if n <= 0 || number != d.next || len(b) <= n+8 || len(b)-n-8 > codec.MaxBlock {
		return nil, fmt.Errorf("raw block %d: %w", d.next, errFormat)
	}
	data, value := b[n:len(b)-8], b[len(b)-8:]
	if !checkFits(value, check(number, data)) {
		return nil, fmt.Errorf("raw block %d: %w", d.next, errCheck)
	}
	d.release()
	d.waits = forNothing
	d.unpack.Rest()
	d.carry.used = len(d.carry.segment)
	d.gap = 0
	d.out = append(d.out, data...)
	d.total += int64(len(data))
	d.next++
	return d.out[d.back:], nil
}
