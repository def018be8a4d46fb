// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// MaxRanges is how many spans one RANGES names at most.
const MaxRanges = 2048

// RangesKind says what a RANGES is about.
type RangesKind uint8

// The kinds of RANGES.
const (
	RangesHold RangesKind = 1 // all that the sender holds of what it got in a group; what is not named it does not hold
	RangesLack RangesKind = 2 // what it holds no longer
	RangesEnd  RangesKind = 3 // every group has been named since the connection began: of others it holds nothing
)

// Ranges tells, on a control connection, what its sender holds of what the other end has sent it.
type Ranges struct {
	Kind       RangesKind
	Group      string
	Generation uint64
	Head       uint64 // position behind the newest byte that it got
	Spans      []Span // sorted and disjoint, at most MaxRanges
}

// Span is the half-open range of positions [Low, High).
type Span struct{ Low, High uint64 }

// Append appends the message's payload to dst. A span is told as the distance from the one before, and its length.
func (m *Ranges) Append(dst []byte) []byte {
	dst = appendString(append(dst, byte(m.Kind)), m.Group)
	dst = binary.AppendUvarint(dst, m.Generation)
	dst = binary.AppendUvarint(dst, m.Head)
	dst = binary.AppendUvarint(dst, uint64(len(m.Spans)))
	at := uint64(0)
	for _, s := range m.Spans {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, s.Low-at), s.High-s.Low)
		at = s.High
	}
	return dst
}

// ParseRanges reads a RANGES. Its spans are sorted, disjoint, not empty, and end at Head at most.
func ParseRanges(b []byte) (Ranges, error) {
	p := parser{b: b}
	m := Ranges{Kind: RangesKind(p.byte()), Group: p.string(255), Generation: p.uvarint(), Head: p.uvarint()}
	n := p.uvarint()
	if m.Kind < RangesHold || m.Kind > RangesEnd || m.Kind != RangesEnd && m.Group == "" ||
		m.Head > 1<<62 || n > MaxRanges || n > uint64(len(p.b))/2 {
		p.bad = true
		return m, p.err(TypeRanges)
	}
	at := uint64(0)
	for range n {
		gap, length := p.uvarint(), p.uvarint()
		if gap > m.Head-at || length == 0 || length > m.Head-at-gap {
			p.bad = true
		}
		if p.bad {
			return Ranges{}, p.err(TypeRanges)
		}
		m.Spans = append(m.Spans, Span{at + gap, at + gap + length})
		at += gap + length
	}
	return m, p.err(TypeRanges)
}
