// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// maxCommands bounds the bytes of a block's commands: escapes can double what is literal.
const maxCommands = 2*codec.MaxBlock + 64

// A payload is taken apart, but for its commands.
type payload struct {
	flags    byte
	broken   int
	skip     int
	cut      int
	commands []byte
	check    []byte
}

func (p *payload) is(flag byte) bool { return p.flags&flag != 0 }

// parse takes a payload apart and unpacks its commands. An error that is not errFormat is the second stage's: the block has
// to come again.
func (d *Decoder) parse(b []byte) (payload, error) {
	p, r := payload{flags: b[0]}, reader{b: b[1:]}
	if p.is(flagBreak) {
		p.broken = r.uvarint(d.size - 1)
	}
	if p.is(flagSkip) {
		p.skip = r.uvarint(d.size - 1)
	}
	if p.is(flagCut) {
		p.cut = r.uvarint(d.size - 1)
	}
	n := 0
	if p.is(flagPacked) {
		n = r.uvarint(maxCommands)
	}
	size := 8
	if p.is(flagShort) {
		size = 4
	}
	if r.bad || len(r.b) < size || p.is(flagFresh) && !p.is(flagPacked) || p.is(flagSkip) && p.skip == 0 ||
		p.is(flagPlain) && p.flags&(flagSkip|flagCut) != 0 {
		return p, fmt.Errorf("header: %w", errFormat)
	}
	p.commands, p.check = r.b[:len(r.b)-size], r.b[len(r.b)-size:]
	if !p.is(flagPacked) {
		return p, nil
	}
	if cap(d.buf) < n {
		d.buf = make([]byte, n+n/4)
	}
	d.buf = d.buf[:n]
	err := d.unpack.Unpack(d.buf, p.commands, p.is(flagFresh))
	p.commands = d.buf
	return p, err
}

// A maker makes a block's bytes in d.out. What it changes is the decoder's only when the block is right.
type maker struct {
	d      *Decoder
	start  int // of the block in d.out
	gap    int
	cut    []byte // the segment that goes on in the next block
	absent bool   // segments are missing, and d.out has gaps
}

// make makes a block. With errAbsent it can be tried again when what is missing has come.
func (d *Decoder) make(p *payload, number uint64) error {
	m := maker{d: d, start: len(d.out), gap: d.gap}
	err := m.run(p)
	n := len(d.out) - m.start
	switch {
	case err != nil:
	case m.absent:
		err = errAbsent
	case n == 0 || n > codec.MaxBlock || (n < shortBlock) != p.is(flagShort):
		err = fmt.Errorf("%d bytes: %w", n, errFormat)
	case !checkFits(p.check, check(number, d.out[m.start:])):
		err = errCheck
	}
	if err != nil {
		d.out = d.out[:m.start]
		return err
	}
	d.commit(&m, p)
	return nil
}

func (d *Decoder) commit(m *maker, p *payload) {
	d.total += int64(len(d.out) - m.start)
	d.gap = m.gap
	d.next++
	switch {
	case m.cut != nil:
		d.carry.segment, d.spare = m.cut, d.carry.segment
		d.carry.used = p.cut
	case p.is(flagCut):
		d.carry.used = p.cut
	default:
		d.carry.used = len(d.carry.segment)
	}
}

// run follows a block's carry and commands.
func (m *maker) run(p *payload) error {
	d := m.d
	left := d.carry.left()
	switch {
	case p.is(flagBreak):
		if p.broken >= len(left) {
			return fmt.Errorf("break: %w", errFormat)
		}
		left = left[:p.broken]
	case p.is(flagCut) && len(p.commands) == 0:
		if p.cut <= d.carry.used || p.cut >= len(d.carry.segment) {
			return fmt.Errorf("cut: %w", errFormat)
		}
		left = left[:p.cut-d.carry.used]
	}
	d.out = append(d.out, left...)
	if p.is(flagPlain) {
		m.gap = 0
		return m.add(p.commands)
	}
	skip := p.skip
	for b := p.commands; len(b) > 0; {
		i := bytes.IndexByte(b, magic)
		if i < 0 {
			i = len(b)
		}
		if err := m.add(b[:i]); err != nil {
			return err
		}
		m.gap += i
		if b = b[i:]; len(b) == 0 {
			break
		}
		if i > 0 && skip > 0 {
			return fmt.Errorf("skip: %w", errFormat)
		}
		var err error
		if b, err = m.command(b, p, skip); err != nil {
			return err
		}
		skip = 0
	}
	if p.is(flagCut) && len(p.commands) > 0 && m.cut == nil && !m.absent {
		return fmt.Errorf("cut: %w", errFormat)
	}
	return nil
}

// add appends bytes of the block.
func (m *maker) add(b []byte) error {
	if len(m.d.out)-m.start+len(b) > codec.MaxBlock {
		return fmt.Errorf("more than %d bytes: %w", codec.MaxBlock, errFormat)
	}
	m.d.out = append(m.d.out, b...)
	return nil
}

// command follows the command that b begins with, and returns what is behind it.
func (m *maker) command(b []byte, p *payload, skip int) ([]byte, error) {
	r := reader{b: b}
	op := r.take(2)
	if r.bad {
		return nil, fmt.Errorf("command: %w", errFormat)
	}
	var err error
	switch op[1] {
	case opEscape:
		m.gap++
		err = m.add(op[:1])
	case opExtract:
		if err = m.add(r.take(m.d.size - skip)); err == nil && !r.bad {
			err = m.keep()
		}
		m.gap = 0
	case opRef:
		err = m.ref(r.hash(), skip, &r, p)
	case opOverRef:
		n := r.length()
		if h := r.hash(); n > m.d.size {
			r.bad = true
		} else if !r.bad {
			err = m.segment(h, m.d.size-n, m.d.size)
		}
	case opExtRef, opOverExt:
		if err = m.add(r.take(r.length())); err == nil && !r.bad {
			err = m.keep()
		}
		if op[1] == opExtRef {
			r.hash()
		}
		m.gap = 0
	default:
		r.bad = true
	}
	if r.bad && err == nil || skip > 0 && op[1] != opExtract && op[1] != opRef {
		err = fmt.Errorf("command %#x: %w", op[1], errFormat)
	}
	return r.b, err
}

// ref follows a reference to a whole segment, of which skip bytes came before, and the last may go on behind the block.
func (m *maker) ref(h uint64, skip int, r *reader, p *payload) error {
	d := m.d
	if r.bad {
		return nil
	}
	to := d.size
	if p.is(flagCut) && len(r.b) == 0 {
		if to = p.cut; to <= skip {
			return fmt.Errorf("cut: %w", errFormat)
		}
	}
	var overlap []byte
	if end := len(d.out) - skip; overlaps(d.over, m.gap-skip, d.total+int64(end-m.start), d.size) && end >= d.size {
		overlap = d.out[end-d.size : end]
	}
	if err := m.segment(h, skip, to); err != nil {
		return err
	}
	if to < d.size && !m.absent {
		m.cut, d.spare = d.spare, nil
		var err error
		if m.cut, err = m.find(m.cut[:0], h); err != nil {
			return err
		}
	}
	if overlap != nil && !m.absent && d.cache != nil {
		d.cache.put(overlap)
		d.cache.use(h)
	}
	m.gap = 0
	return nil
}

// segment appends a part of a segment. If that is missing, zeros take its place.
func (m *maker) segment(h uint64, from, to int) error {
	d := m.d
	at := len(d.out)
	out, err := m.find(d.out, h)
	if errors.Is(err, errAbsent) {
		m.absent = true
		out = append(d.out, make([]byte, d.size)...)
	}
	if from > 0 {
		copy(out[at:], out[at+from:at+to])
	}
	d.out = out[:at+to-from]
	if len(d.out)-m.start > codec.MaxBlock {
		return fmt.Errorf("more than %d bytes: %w", codec.MaxBlock, errFormat)
	}
	return nil
}

// find appends a whole segment to dst.
func (m *maker) find(dst []byte, h uint64) ([]byte, error) {
	if c := m.d.cache; c != nil {
		if out, ok := c.get(dst, h); ok {
			return out, nil
		}
	}
	if s, ok := m.d.learned[h]; ok {
		return append(dst, s...), nil
	}
	return dst, errAbsent
}

// keep puts the segment that the block's bytes end with so far into the cache.
func (m *maker) keep() error {
	d := m.d
	if len(d.out) < d.size {
		return fmt.Errorf("a segment reaches back too far: %w", errFormat)
	}
	if d.cache != nil && !m.absent {
		d.cache.put(d.out[len(d.out)-d.size:])
	}
	return nil
}

// wanted makes an ask's detail: the segments that are missing in what waits, as far as there is room.
func (d *Decoder) wanted() []byte {
	w := wanted{d: d, seen: make(map[uint64]bool), detail: []byte{magic, opAsk}}
	for i := range d.held {
		if p := &d.held[i].p; !p.is(flagPlain) {
			w.look(p.commands, p.skip)
		}
	}
	return w.detail
}

type wanted struct {
	d      *Decoder
	seen   map[uint64]bool // asked for, or to be had from what waits
	detail []byte
}

// look goes through a payload's commands. If they are malformed that is found when they are followed.
func (w *wanted) look(b []byte, skip int) {
	for {
		i := bytes.IndexByte(b, magic)
		if i < 0 {
			return
		}
		r := reader{b: b[i:]}
		op := r.take(2)
		if r.bad {
			return
		}
		switch op[1] {
		case opExtract:
			if segment := r.take(w.d.size - skip); skip == 0 && !r.bad {
				w.seen[sum(segment)] = true
			}
		case opRef:
			w.note(r.hash(), r.bad)
		case opOverRef:
			r.length()
			w.note(r.hash(), r.bad)
		case opExtRef:
			r.take(r.length())
			w.seen[r.hash()] = true
		case opOverExt:
			r.take(r.length())
		}
		b, skip = r.b, 0
	}
}

func (w *wanted) note(h uint64, bad bool) {
	if bad || w.seen[h] || len(w.detail) >= askBytes+8*maxAsked {
		return
	}
	w.seen[h] = true
	if _, ok := w.d.learned[h]; ok || w.d.cache != nil && w.d.cache.has(h) {
		return
	}
	w.detail = appendHash(w.detail, h)
}

// has tells whether the segment of a hash is there.
func (c *cache) has(h uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(h) != 0
}

// full tells whether the cache has dropped segments to make room.
func (c *cache) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.evicted
}

// use takes the segment of a hash for used.
func (c *cache) use(h uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slot := c.lookup(h); slot != 0 {
		c.touch(slot)
	}
}
