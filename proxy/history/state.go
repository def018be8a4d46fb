// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// errDamaged is a file that is not what its name says.
var errDamaged = errors.New("damaged, or not of this version")

// stateMagic begins a state; its last byte is the version of all files of a log.
const stateMagic = "TLHIST\r\x01"

// bootID says which run of the kernel it is.
type bootID [16]byte

// direction says which end's log it is.
type direction byte

const (
	sent     direction = 's'
	received direction = 'r'
)

// A state is what has to be known of a log beside its bytes.
type state struct {
	direction  direction
	clean      bool   // the log was closed, and all of it written, before this was
	boot       bootID // the kernel whose page cache holds the log's bytes
	bound      uint64 // gives the geometry of the ring
	generation uint64
	base       uint64 // first position of the generation
	head       uint64
	ahead      uint64 // no byte at or beyond this position has been written before another state
	group      string
	held       []span // of a sender: what is in its ring; of a receiver: what is present
}

const (
	stateFixed = len(stateMagic) + 1 + 1 + 16 + 5*8 + 2 + 4 // all but the name, the spans and the check
	maxName    = 255
)

// append appends the state's form on disk to dst.
func (s *state) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, stateMagic...)
	clean := byte(0)
	if s.clean {
		clean = 1
	}
	dst = append(dst, byte(s.direction), clean)
	dst = append(dst, s.boot[:]...)
	for _, v := range [...]uint64{s.bound, s.generation, s.base, s.head, s.ahead} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.group)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.held)))
	dst = append(dst, s.group...)
	for _, r := range s.held {
		dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, r.lo), r.hi)
	}
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// parseState reads a state, and gives what follows it and its check. Whatever the bytes are, it allocates no more than they take.
func parseState(b []byte) (s state, rest []byte, check uint64, err error) {
	if len(b) < stateFixed || !bytes.HasPrefix(b, []byte(stateMagic)) {
		return s, nil, 0, errDamaged
	}
	r := b[len(stateMagic):]
	s.direction, s.clean = direction(r[0]), r[1] == 1
	copy(s.boot[:], r[2:])
	r = r[2+16:]
	for _, v := range [...]*uint64{&s.bound, &s.generation, &s.base, &s.head, &s.ahead} {
		*v, r = binary.LittleEndian.Uint64(r), r[8:]
	}
	name, n := int(binary.LittleEndian.Uint16(r)), int(binary.LittleEndian.Uint32(r[2:]))
	r = r[6:]
	if name > maxName || n < 0 || len(r) < name+8 || (len(r)-name-8)/16 < n {
		return s, nil, 0, errDamaged
	}
	end := len(b) - len(r) + name + 16*n
	if check = binary.LittleEndian.Uint64(b[end:]); check != xxhash.Sum64(b[:end]) {
		return s, nil, 0, errDamaged
	}
	s.group, r = string(r[:name]), r[name:]
	s.held = make([]span, n)
	for i := range s.held {
		s.held[i] = span{binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(r[8:])}
		r = r[16:]
	}
	return s, b[end+8:], check, s.verify()
}

// verify finds what cannot be.
func (s *state) verify() error {
	b, _, size := sizes(int64(min(s.bound, maxBound)))
	switch {
	case s.direction != sent && s.direction != received, b != s.bound, s.group == "":
		return fmt.Errorf("a log of another kind: %w", errDamaged)
	case s.head > MaxPos, s.base > s.head, s.ahead > MaxPos, len(s.held) > spansFor(size), !valid(s.held, s.head):
		return fmt.Errorf("positions: %w", errDamaged)
	}
	return nil
}

// A change is one of the records that follow a state in the file of a running log.
type change struct {
	lo, hi uint64
	drop   bool // the range is gone; else it has come
}

// changeSize is bytes of a change on disk: the range, the top bit of its end saying that it is gone, and a check.
const changeSize = 3 * 8

const dropBit = 1 << 63

// append appends change number n behind a state with a check. The number and the state's check are part of its own, so that
// what was written behind another state is not taken for one.
func (c change) append(dst []byte, check uint64, n int) []byte {
	start := len(dst)
	hi := c.hi
	if c.drop {
		hi |= dropBit
	}
	dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, c.lo), hi)
	return binary.LittleEndian.AppendUint64(dst, changeCheck(dst[start:], check, n))
}

func changeCheck(b []byte, check uint64, n int) uint64 {
	var all [4 * 8]byte
	copy(all[:], b[:16])
	binary.LittleEndian.PutUint64(all[16:], check)
	binary.LittleEndian.PutUint64(all[24:], uint64(n))
	return xxhash.Sum64(all[:])
}

// replay applies the changes in b to the state: all up to the first that is not whole.
func (s *state) replay(b []byte, check uint64) {
	_, _, size := sizes(int64(s.bound))
	held := spans{all: s.held, max: spansFor(size)}
	for n := 0; len(b) >= changeSize; n++ {
		c := change{lo: binary.LittleEndian.Uint64(b), hi: binary.LittleEndian.Uint64(b[8:])}
		if binary.LittleEndian.Uint64(b[16:]) != changeCheck(b, check, n) {
			break
		}
		c.drop, c.hi = c.hi&dropBit != 0, c.hi&^dropBit
		if c.lo >= c.hi || c.hi > MaxPos {
			break
		}
		b = b[changeSize:]
		if c.drop {
			held.remove(c.lo, c.hi)
			continue
		}
		held.add(c.lo, c.hi)
		if s.head = max(s.head, c.hi); s.head > size {
			held.trim(s.head - size)
		}
	}
	// What was being written at the end may have overwritten the oldest bytes before it was entered.
	if s.head > s.bound {
		held.trim(s.head - s.bound)
	}
	s.held = append([]span(nil), held.live()...)
	s.ahead = max(s.ahead, s.head)
}

// survive makes the state what it is after the machine ended: what came after it was written is gone, and what that replaced too.
func (s *state) survive() {
	if s.clean {
		return
	}
	_, _, size := sizes(int64(s.bound))
	held := spans{all: s.held}
	if s.ahead > size {
		held.trim(s.ahead - size)
	}
	s.held = held.live()
	if s.direction == sent {
		s.head = s.ahead // no position is given twice
	}
}
