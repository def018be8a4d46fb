// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
)

// The ground truth of retransmissions is taken where packets enter the link, before any is lost there. A segment with
// payload, SYN or FIN is a retransmission when its whole range of sequence numbers has entered before, and a first
// transmission when none of it has. The ranges of each flow are kept, and not only the highest number, because two CPUs
// of a sender can put two first transmissions into the device in the wrong order.
//
// Linux's keep-alives and window probes carry no byte and so are neither. A stack whose probes carry one old byte would
// have them counted as retransmissions, which is what they are on the wire. SYN-ACKs sent again are counted apart: the
// kernel shows the marker no socket from which it could tell them.

// maxFlows bounds each of two generations of flows: when the young one is full, the old one is forgotten.
const maxFlows = 1 << 15

// maxSpans bounds the separate ranges of a flow. Beyond it the lowest gap is taken for seen.
const maxSpans = 64

// flowKey is addresses and ports as they stand in the packet, in one direction.
type flowKey struct {
	v6    bool
	bytes [36]byte
}

type flow struct {
	isn  uint64
	seen []span // ascending, apart from each other

	aged     bool
	leastAge uint32 // ms between the sender's stamp and the link, from an origin of the connection's own
}

// span is sequence numbers lo to hi (not included), counted on beyond 32 bits.
type span struct{ lo, hi uint64 }

type truth struct {
	dscp       uint8
	young, old map[flowKey]*flow
}

func newTruth(dscp uint8) *truth {
	return &truth{dscp: dscp, young: map[flowKey]*flow{}, old: map[flowKey]*flow{}}
}

// observe enters every segment of the packet into the statistics.
func (t *truth) observe(p *packet, st *Stats) {
	if !p.tcp {
		return
	}
	total := p.payload()
	if total == 0 && p.flags&(flagSYN|flagFIN) == 0 {
		return
	}
	f := t.flow(p)
	marked := p.dscp == t.dscp
	for i := range p.segments {
		lo := i * p.mss
		hi := min(lo+p.mss, total)
		n := hi - lo
		if p.flags&flagSYN != 0 && i == 0 {
			n++
		}
		if p.flags&flagFIN != 0 && i == p.segments-1 {
			n++
		}
		st.count(p, f.enter(f.extend(p.seq+uint32(lo)), n), marked)
	}
}

// count takes what of the segment had entered before into the figures.
func (st *Stats) count(p *packet, seen overlap, marked bool) {
	st.DataSegments++
	switch {
	case seen == overlapNone:
		if marked {
			st.FirstMarked++
		}
	case seen == overlapPart:
		st.PartlyNew++
	case p.flags&(flagSYN|flagACK) == flagSYN|flagACK:
		st.SynAckRetransmits++
	default:
		st.Retransmits++
		if marked {
			st.RetransmitsMarked++
		}
	}
}

func (t *truth) flow(p *packet) *flow {
	k := keyOf(p)
	f := t.young[k]
	if f == nil {
		if f = t.old[k]; f == nil {
			f = newFlow(p.seq)
		}
		if len(t.young) >= maxFlows {
			t.old, t.young = t.young, map[flowKey]*flow{}
		}
		t.young[k] = f
	}
	if p.flags&flagSYN != 0 && uint32(f.isn) != p.seq {
		*f = *newFlow(p.seq) // the ports are used again
	}
	return f
}

func keyOf(p *packet) flowKey {
	ip := p.raw[vnetHeader:]
	k := flowKey{v6: p.v6}
	if p.v6 {
		copy(k.bytes[:32], ip[8:40])
	} else {
		copy(k.bytes[:8], ip[12:20])
	}
	copy(k.bytes[32:], ip[p.ipHeader:p.ipHeader+4])
	return k
}

// newFlow starts at 1<<32, so that numbers somewhat older than the first seen do not wrap.
func newFlow(seq uint32) *flow { return &flow{isn: 1<<32 | uint64(seq)} }

// extend continues a sequence number beyond 32 bits, as the one nearest to the highest seen.
func (f *flow) extend(seq uint32) uint64 {
	ref := f.isn
	if n := len(f.seen); n > 0 {
		ref = f.seen[n-1].hi
	}
	return ref + uint64(int64(int32(seq-uint32(ref))))
}

type overlap int

const (
	overlapNone overlap = iota
	overlapPart
	overlapAll
)

// enter adds n sequence numbers from lo on and says how many of them were there already.
func (f *flow) enter(lo uint64, n int) overlap {
	s := span{lo, lo + uint64(n)}
	// The spans that overlap or touch s are i to j.
	i, _ := slices.BinarySearchFunc(f.seen, s.lo, func(e span, lo uint64) int {
		if e.hi < lo {
			return -1
		}
		return 1
	})
	j := i
	var known uint64
	for ; j < len(f.seen) && f.seen[j].lo <= s.hi; j++ {
		e := f.seen[j]
		known += min(e.hi, lo+uint64(n)) - max(e.lo, lo)
		s.lo, s.hi = min(s.lo, e.lo), max(s.hi, e.hi)
	}
	f.seen = slices.Replace(f.seen, i, j, s)
	if len(f.seen) > maxSpans {
		f.seen[1].lo = f.seen[0].lo
		f.seen = slices.Delete(f.seen, 0, 1)
	}
	switch known {
	case 0:
		return overlapNone
	case uint64(n):
		return overlapAll
	}
	return overlapPart
}
