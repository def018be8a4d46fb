// SPDX-License-Identifier: Apache-2.0

package lab

import "time"

// Stats is what one direction of the link, or both, carried. Loss and ground truth count segments of at most one MTU,
// into which super-packets are resolved. A link in the kernel has the figures down to Delivered, and neither lateness nor
// ground truth.
type Stats struct {
	Packets  uint64 // as the sender's device gave them; a super-packet is one
	Segments uint64
	Bytes    uint64 // IP bytes of the segments, headers included, lost ones too: what a network card would have counted

	Lost        uint64 // segments, by Options.Loss
	QueueDrops  uint64 // segments that found the queue full
	DownDrops   uint64 // segments lost because the link was down
	WriteErrors uint64 // packets that the receiving device did not take; in-process

	Delivered uint64        // packets, after splitting
	LateSum   time.Duration // by how much deliveries missed their time, summed
	LateMax   time.Duration // the worst since Link.Restart, also of taking a packet; a measurement with a large one is polluted by other load

	DataSegments      uint64 // with payload, SYN or FIN
	Retransmits       uint64 // of them, sent before, but not SYN-ACKs
	RetransmitsMarked uint64 // of the retransmissions, with the DSCP
	FirstMarked       uint64 // first transmissions with the DSCP
	SynAckRetransmits uint64
	MarkedCE          uint64 // segments in which the link said that there was congestion
	PartlyNew         uint64 // old and new bytes in one segment: neither a first nor a second transmission
}

// LateAvg is the mean lateness of the deliveries.
func (s Stats) LateAvg() time.Duration {
	if s.Delivered == 0 {
		return 0
	}
	return s.LateSum / time.Duration(s.Delivered)
}

// Add gives the sum of two directions or two periods.
func (s Stats) Add(o Stats) Stats {
	s.each(o, func(a, b uint64) uint64 { return a + b })
	s.LateSum += o.LateSum
	s.LateMax = max(s.LateMax, o.LateMax)
	return s
}

// Since gives what was added since an earlier reading. LateMax stays that of the whole time.
func (s Stats) Since(earlier Stats) Stats {
	s.each(earlier, func(a, b uint64) uint64 { return a - b })
	s.LateSum -= earlier.LateSum
	return s
}

func (s *Stats) each(o Stats, f func(a, b uint64) uint64) {
	for _, c := range []struct {
		a *uint64
		b uint64
	}{
		{&s.Packets, o.Packets}, {&s.Segments, o.Segments}, {&s.Bytes, o.Bytes},
		{&s.Lost, o.Lost}, {&s.QueueDrops, o.QueueDrops}, {&s.DownDrops, o.DownDrops},
		{&s.WriteErrors, o.WriteErrors}, {&s.Delivered, o.Delivered},
		{&s.DataSegments, o.DataSegments}, {&s.Retransmits, o.Retransmits},
		{&s.RetransmitsMarked, o.RetransmitsMarked}, {&s.FirstMarked, o.FirstMarked},
		{&s.SynAckRetransmits, o.SynAckRetransmits}, {&s.PartlyNew, o.PartlyNew},
		{&s.MarkedCE, o.MarkedCE},
	} {
		*c.a = f(*c.a, c.b)
	}
}
