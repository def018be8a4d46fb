// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"math/bits"

	"github.com/trunkline/trunkline/proxy/history"
)

// Anchors are places that are found again wherever the same bytes occur. Whether there may be one behind a byte depends on the
// selectBytes bytes that end there; their product with a constant is small for one in 1<<selectBits. No place depends on
// the one before it, so that a processor works at several at once, unlike a rolling hash. The anchorGap bytes behind an anchor have
// none: they are passed over unseen. Where nothing is selected for anchorMost bytes there is one nevertheless.
//
// So two copies of the same bytes may have other anchors at first, and have the same ones from the first that both have; looking
// at all selected places, which costs more, finds the first one of the other copy.
const (
	selectBytes  = 8
	selectBits   = 6
	selectFactor = 0x9e3779b97f4a7c15
	selectBelow  = 1 << (64 - selectBits)
	anchorGap    = 160
	anchorMost   = 1024
	sparseGap    = 1024
	printBytes   = 64 // bytes that an anchor's hash is of: fewer come again in too many places
)

// scan appends the anchors of src in (from, to] to dst; the first is at next or behind it, and they are gap bytes apart at
// least. It returns from where on the next may be. An anchor's At is the offset behind its last byte, at least printBytes. Of a
// run of equal anchors, as constant data gives, only the first is kept.
func scan(src []byte, from, to, next, gap int, dst []history.Sample) (int, []history.Sample) {
	last := uint64(0)
	for at := max(from+1, next, printBytes); ; {
		most := at + anchorMost
		at = selected(src, at, min(to, most))
		if at > to {
			return at, dst
		}
		if h := fingerprint(src[at-printBytes : at]); h != last {
			dst = append(dst, history.Sample{Hash: h, At: at})
			last = h
		}
		at += gap
	}
}

// selected returns the first offset of [at, to] that is selected, else to + 1.
func selected(src []byte, at, to int) int {
	const unrolled = 8
	for ; at+unrolled-1 <= to; at += unrolled {
		b := (*[selectBytes + unrolled - 1]byte)(src[at-selectBytes:])
		if word(b[0:8])*selectFactor < selectBelow {
			return at
		}
		if word(b[1:9])*selectFactor < selectBelow {
			return at + 1
		}
		if word(b[2:10])*selectFactor < selectBelow {
			return at + 2
		}
		if word(b[3:11])*selectFactor < selectBelow {
			return at + 3
		}
		if word(b[4:12])*selectFactor < selectBelow {
			return at + 4
		}
		if word(b[5:13])*selectFactor < selectBelow {
			return at + 5
		}
		if word(b[6:14])*selectFactor < selectBelow {
			return at + 6
		}
		if word(b[7:15])*selectFactor < selectBelow {
			return at + 7
		}
	}
	for ; at <= to; at++ {
		if word(src[at-selectBytes:])*selectFactor < selectBelow {
			return at
		}
	}
	return at
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// fingerprint hashes the last printBytes bytes of b. It only has to tell bytes apart: all matches are compared.
func fingerprint(b []byte) uint64 {
	p := (*[printBytes]byte)(b)
	h1, l1 := bits.Mul64(word(p[0:8])^0xa0761d6478bd642f, word(p[8:16])^0xe7037ed1a0b428db)
	h2, l2 := bits.Mul64(word(p[16:24])^0x8ebc6af09c88c6e3, word(p[24:32])^0x589965cc75374cc3)
	h3, l3 := bits.Mul64(word(p[32:40])^0x1d8e4e27c47d124f, word(p[40:48])^0xeb44accab455d165)
	h4, l4 := bits.Mul64(word(p[48:56])^0x9c6e6877736c46e3, word(p[56:64])^0xa0761d6478bd642f)
	return h1 ^ l1 + bits.RotateLeft64(h2^l2, 17) + bits.RotateLeft64(h3^l3, 31) + bits.RotateLeft64(h4^l4, 47)
}
