// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"testing"
)

// tcp4 makes an IPv4 TCP packet with a virtio header.
func tcp4(seq uint32, flags byte, payload, mss int, dscp uint8) []byte {
	raw := make([]byte, vnetHeader+40+payload)
	if payload > mss && mss > 0 {
		raw[1] = gsoTCPv4
		binary.LittleEndian.PutUint16(raw[4:], uint16(mss))
	}
	ip := raw[vnetHeader:]
	ip[0], ip[1], ip[9] = 0x45, dscp<<2, protoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	t := ip[20:]
	binary.BigEndian.PutUint32(t[4:], seq)
	t[12], t[13] = 5<<4, flags
	return raw
}

func TestTruth(t *testing.T) {
	const dscp = 10
	type sent struct {
		seq          uint32
		flags        byte
		payload, mss int
		marked       bool
	}
	cases := []struct {
		name string
		sent []sent
		want Stats
	}{
		{"in order", []sent{{99, flagSYN, 0, 0, false}, {100, flagACK, 1000, 0, false}, {1100, flagACK | flagFIN, 0, 0, false}},
			Stats{DataSegments: 3}},
		{"everything again", []sent{{99, flagSYN, 0, 0, false}, {99, flagSYN, 0, 0, true}, {100, flagACK, 500, 0, false},
			{100, flagACK, 500, 0, true}, {600, flagFIN | flagACK, 0, 0, false}, {600, flagFIN | flagACK, 0, 0, true}},
			Stats{DataSegments: 6, Retransmits: 3, RetransmitsMarked: 3}},
		{"super-packet and one of its segments", []sent{{1, flagACK, 4000, 1000, false}, {1001, flagACK, 1000, 0, true}},
			Stats{DataSegments: 5, Retransmits: 1, RetransmitsMarked: 1}},
		{"super-packet again", []sent{{1, flagACK, 2500, 1000, false}, {1, flagACK, 2500, 1000, false}},
			Stats{DataSegments: 6, Retransmits: 3}},
		{"first transmissions in the wrong order", []sent{{1, flagACK, 100, 0, false}, {301, flagACK, 100, 0, false},
			{201, flagACK, 100, 0, false}, {101, flagACK, 100, 0, false}, {101, flagACK, 300, 0, true}},
			Stats{DataSegments: 5, Retransmits: 1, RetransmitsMarked: 1}},
		{"first transmission marked", []sent{{1, flagACK, 100, 0, true}}, Stats{DataSegments: 1, FirstMarked: 1}},
		{"acknowledgements and probes are nothing", []sent{{1, flagACK, 100, 0, false}, {101, flagACK, 0, 0, true}, {100, flagACK, 0, 0, true}},
			Stats{DataSegments: 1}},
		{"SYN-ACK again", []sent{{1, flagSYN | flagACK, 0, 0, false}, {1, flagSYN | flagACK, 0, 0, false}},
			Stats{DataSegments: 2, SynAckRetransmits: 1}},
		{"over the end of the numbers", []sent{{0xffffff00, flagACK, 0x200, 0, false}, {0x100, flagACK, 100, 0, false}, {0xffffff80, flagACK, 256, 0, false}},
			Stats{DataSegments: 3, Retransmits: 1}},
		{"ports used again", []sent{{5000, flagSYN, 0, 0, false}, {5001, flagACK, 100, 0, false}, {4900, flagSYN, 0, 0, false}, {4901, flagACK, 500, 0, false}},
			Stats{DataSegments: 4}},
		{"old and new in one", []sent{{1, flagACK, 100, 0, false}, {51, flagACK, 100, 0, false}}, Stats{DataSegments: 2, PartlyNew: 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tr := newTruth(dscp)
			var st Stats
			for _, s := range c.sent {
				code := uint8(0)
				if s.marked {
					code = dscp
				}
				p, ok := parse(tcp4(s.seq, s.flags, s.payload, s.mss, code))
				if !ok || !p.tcp {
					t.Fatal("not taken for TCP")
				}
				tr.observe(&p, &st)
			}
			if st != c.want {
				t.Errorf("got  %+v\nwant %+v", st, c.want)
			}
		})
	}
}

func TestTruthIsBounded(t *testing.T) {
	f := newFlow(0)
	for i := range 10 * maxSpans {
		f.enter(f.extend(uint32(i*20)), 10)
	}
	if len(f.seen) > maxSpans {
		t.Errorf("%d spans", len(f.seen))
	}
	tr := newTruth(10)
	for i := range 3 * maxFlows {
		raw := tcp4(1, flagACK, 1, 0, 0)
		binary.BigEndian.PutUint32(raw[vnetHeader+12:], uint32(i))
		p, _ := parse(raw)
		tr.flow(&p)
	}
	if n := len(tr.young) + len(tr.old); n > 2*maxFlows {
		t.Errorf("%d flows", n)
	}
}

func TestPart(t *testing.T) {
	raw := tcp4(1000, flagACK|flagPSH|flagFIN|flagCWR, 2500, 1000, 0)
	p, _ := parse(raw)
	if p.segments != 3 {
		t.Fatalf("%d segments", p.segments)
	}
	for _, c := range []struct {
		first, last int
		seq         uint32
		payload     int
		gso, flags  byte
	}{
		{0, 1, 1000, 1000, gsoNone, flagACK | flagCWR},
		{0, 2, 1000, 2000, gsoTCPv4, flagACK | flagCWR},
		{1, 3, 2000, 1500, gsoTCPv4, flagACK | flagPSH | flagFIN},
		{2, 3, 3000, 500, gsoNone, flagACK | flagPSH | flagFIN},
	} {
		q, ok := parse(p.part(c.first, c.last))
		if !ok || q.seq != c.seq || q.payload() != c.payload || q.raw[1] != c.gso || q.flags != c.flags {
			t.Errorf("segments %d to %d: seq %d, %d bytes, gso %d, flags %x", c.first, c.last, q.seq, q.payload(), q.raw[1], q.flags)
		}
		ip := q.raw[vnetHeader:]
		if fold(sum16(ip[:20], 0)) != 0xffff {
			t.Errorf("segments %d to %d: the IP checksum is wrong", c.first, c.last)
		}
	}
}
