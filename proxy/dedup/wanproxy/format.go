// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// magic begins every command; the byte behind it says which.
const magic = 0xf1

// The commands. Numbers are part of the protocol: they are never reused. 3 is WANProxy's BACKREF, which it never sends.
const (
	opEscape  = 0x00 // a byte that is magic
	opExtract = 0x01 // a segment, which is kept
	opRef     = 0x02 // hash: a segment that was kept
	opOverRef = 0x04 // length (2 bytes), hash: the last bytes of a segment that was kept
	opExtRef  = 0x05 // length, bytes, hash: the segment that they end is kept, and has the hash
	opOverExt = 0x06 // length, bytes: the segment that they end is kept
	opAsk     = 0x07 // hashes: in an ask, segments that are wanted
	opLearn   = 0x08 // hash, segment: the answer
)

// Bytes that commands take besides what they carry.
const (
	refBytes     = 2 + 8
	overRefBytes = 2 + 2 + 8
	extRefBytes  = 2 + 2 + 8
	overExtBytes = 2 + 2
	askBytes     = 2
)

// Flags of a payload.
const (
	flagBreak  = 1 << iota // the segment that the last payload began ends early
	flagSkip               // the first command's segment begins with bytes that were sent already
	flagCut                // the last command's segment goes on in the next payload
	flagPacked             // the commands went through the second stage
	flagFresh              // whose stream begins anew
	flagShort              // the check has 32 bits
	flagPlain              // bytes in place of commands
	flagAnswer             // the rest of the byte says which answer to an ask this is
)

// Answers.
const (
	answerLearn = flagAnswer | 1 // LEARN commands
	answerMore  = flagAnswer | 2 // nothing: goes on with what waits
	answerRaw   = flagAnswer | 3 // a block, raw
)

const (
	shortBlock       = 512      // bytes; below it the check has 32 bits
	worthwhile       = 14       // bytes for which a reference is worth its own
	packedWorthwhile = 256      // the same for OVER_REF before a second stage, which compresses literals and no hashes
	minOverlap       = 16       // bytes behind the last segment from which an overlapping segment is made
	maxHeld          = 32 << 20 // bytes of payloads that wait for an answer: twice the most credit that a flow is given
	maxAsked         = (codec.MaxDetail - askBytes) / 8
	mostTries        = 3         // at a block whose segments come and go with other flows
	moreBytes        = 256 << 10 // raw bytes that wait for one answerMore
)

var (
	errFormat = errors.New("malformed payload")
	errCheck  = errors.New("the check does not fit: the far end holds other bytes")
	errAbsent = errors.New("segments are not held")
)

// check computes the check value of a block: a block in another's place is found out as well.
func check(number uint64, data []byte) uint64 {
	return xxhash.Sum64(data) ^ bits.RotateLeft64((number+1)*0x9e3779b97f4a7c15, 32)
}

func appendCheck(dst []byte, check uint64, short bool) []byte {
	if short {
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

// appendEscaped appends bytes as commands have them between each other.
func appendEscaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, magic)
		if i < 0 {
			return append(dst, b...)
		}
		dst = append(append(dst, b[:i]...), magic, opEscape)
		b = b[i+1:]
	}
}

// A reader takes fields from the front of a payload; after a field that is not there, bad is set.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint(most int) int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(most) {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) hash() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) length() int {
	if b := r.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}
