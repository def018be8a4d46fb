// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

const (
	shortBlock = 512 // bytes; below it the check has 32 bits
	minMatch   = 32  // bytes that are worth a reference
)

// Flags of a block. The upper three bits are the form of its literals.
const (
	flagRecorded = 1 << iota // the block is part of the history and has a position
	flagPlace                // generation and position follow
	flagGap                  // a gap follows; else the position is the end of the leg's last recorded block
	flagOps                  // operations follow
	flagRestart              // the answer to an ask
	formShift    = iota
)

// A form says what a block's literals are.
type form byte

const (
	formNone     form = iota // there are none
	formRaw                  // the bytes
	formOn                   // the next part of the leg's compressed stream
	formShort                // the same of a zstd stream, where that is one compressed block, without the block's header
	formZstd                 // the first part of a zstd stream, behind the number of bytes that prime it
	formZlib                 // the first part of a deflate stream, behind the number of bytes that prime it
	formModel                // what the leg's model makes of them
	formModelNew             // what a new model makes of them, behind the number of bytes that prime it
)

func formOf(flags byte) form { return form(flags >> formShift) }

// packed tells whether literals are compressed, fresh whether they begin a stream or a model.
func (f form) packed() bool { return f > formRaw }
func (f form) fresh() bool  { return f == formZstd || f == formZlib || f == formModelNew }

var errFormat = errors.New("malformed block")

// place says where a block belongs: what its check is mixed with.
type place struct {
	number     uint64 // of the block on its leg
	recorded   bool   // it is part of the history, at pos
	refers     bool   // it refers to the history
	generation uint64 // of the history
	pos        uint64
}

// check computes the check value of a block.
func (p place) check(data []byte) uint64 { return p.mix(xxhash.Sum64(data)) }

// mix makes the check value of a block of the xxhash64 of its bytes.
func (p place) mix(h uint64) uint64 {
	h ^= bits.RotateLeft64((p.number+1)*0x9e3779b97f4a7c15, 32)
	if p.recorded || p.refers {
		h ^= bits.RotateLeft64(p.generation*0xbf58476d1ce4e5b9, 17)
	}
	if p.recorded {
		h ^= (p.pos + 1) * 0x94d049bb133111eb
	}
	return h
}

// checkSize returns the bytes that the check of a block takes.
func checkSize(raw int, restart bool) int {
	if raw < shortBlock && !restart {
		return 4
	}
	return 8
}

func appendCheck(dst []byte, check uint64, size int) []byte {
	if size == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(check^check>>32))
	}
	return binary.LittleEndian.AppendUint64(dst, check)
}

func checkFits(b []byte, check uint64) bool {
	if len(b) == 4 {
		return binary.LittleEndian.Uint32(b) == uint32(check^check>>32)
	}
	return binary.LittleEndian.Uint64(b) == check
}

// An op is a run of literals followed by a reference; n is 0 in a last one that has only literals.
type op struct {
	lit, n int
	pos    uint64
}

// A reader takes fields from the front of a payload; after a field that is not there, bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) uint64() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// size reads a number of bytes of which there can be at most most.
func (r *reader) size(most int) int {
	v := r.uvarint()
	if v > uint64(most) {
		r.bad = true
		return 0
	}
	return int(v)
}

func appendVarint(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}
