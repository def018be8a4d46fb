// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
)

const (
	protoTCP = 6

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4

	flagFIN = 0x01
	flagSYN = 0x02
	flagPSH = 0x08
	flagACK = 0x10
	flagCWR = 0x80
)

// packet is a view of what one read of a TUN device gave: a virtio header and an IP packet, which may be a TCP
// super-packet standing for several segments on the wire.
type packet struct {
	raw      []byte // with the virtio header
	v6       bool
	multi    bool // to a multicast address
	tcp      bool
	dscp     uint8
	ipHeader int
	headers  int // IP and TCP
	flags    byte
	seq      uint32
	mss      int // payload bytes per segment
	segments int
}

// parse reads the headers; ok is false for what is not a whole IP packet.
func parse(raw []byte) (p packet, ok bool) {
	if len(raw) < vnetHeader+20 {
		return p, false
	}
	p = packet{raw: raw, segments: 1}
	ip := raw[vnetHeader:]
	var proto byte
	switch ip[0] >> 4 {
	case 4:
		p.ipHeader, proto = int(ip[0]&15)*4, ip[9]
		p.dscp = ip[1] >> 2
		p.multi = ip[16]>>4 == 0xe
		if binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
			proto = 0 // a later fragment has no TCP header
		}
	case 6:
		if len(ip) < 40 {
			return p, false
		}
		p.v6, p.ipHeader, proto = true, 40, ip[6]
		p.dscp = (ip[0]<<4 | ip[1]>>4) >> 2
		p.multi = ip[24] == 0xff
	default:
		return p, false
	}
	if proto == protoTCP && len(ip) >= p.ipHeader+20 {
		p.parseTCP(ip)
	}
	return p, true
}

func (p *packet) parseTCP(ip []byte) {
	t := ip[p.ipHeader:]
	p.headers = p.ipHeader + int(t[12]>>4)*4
	if p.headers > len(ip) {
		return
	}
	p.tcp = true
	p.seq = binary.BigEndian.Uint32(t[4:])
	p.flags = t[13]
	p.mss = p.payload()
	size := int(binary.LittleEndian.Uint16(p.raw[4:]))
	if p.raw[1] != gsoNone && size > 0 && p.payload() > size {
		p.mss = size
		p.segments = (p.payload() + size - 1) / size
	}
}

// payload is the number of TCP payload bytes.
func (p *packet) payload() int { return len(p.raw) - vnetHeader - p.headers }

// segmentSize is the number of IP bytes of segment i on the wire.
func (p *packet) segmentSize(i int) int {
	if p.segments == 1 {
		return len(p.raw) - vnetHeader
	}
	return p.headers + min(p.mss, p.payload()-i*p.mss)
}

// part makes a packet of its own of the segments from first to last (not included), as the network card would cut
// them. The unfinished checksum stays unfinished; only the pseudo-header's sum in it follows the new length.
func (p *packet) part(first, last int) []byte {
	lo := first * p.mss
	hi := min(last*p.mss, p.payload())
	o := make([]byte, vnetHeader+p.headers+hi-lo)
	copy(o, p.raw[:vnetHeader+p.headers])
	copy(o[vnetHeader+p.headers:], p.raw[vnetHeader+p.headers+lo:vnetHeader+p.headers+hi])

	ip := o[vnetHeader:]
	t := ip[p.ipHeader:]
	binary.BigEndian.PutUint32(t[4:], p.seq+uint32(lo))
	if hi < p.payload() {
		t[13] &^= flagFIN | flagPSH // they belong to the last segment
	}
	if first > 0 {
		t[13] &^= flagCWR // and this to the first
	}
	sum := uint32(protoTCP) + uint32(len(t))
	if p.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(t)))
		sum = sum16(ip[8:40], sum)
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(first))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum16(ip[:p.ipHeader], 0)))
		sum = sum16(ip[12:20], sum)
	}
	binary.BigEndian.PutUint16(t[16:], fold(sum))
	if last-first == 1 {
		o[1] = gsoNone
		binary.LittleEndian.PutUint16(o[4:], 0)
	}
	return o
}

// markCE says in the IP header that there was congestion, if the ends can read it, and returns whether they can.
func (p *packet) markCE() bool {
	ip := p.raw[vnetHeader:]
	if p.v6 {
		if ip[1]&0x30 == 0 {
			return false
		}
		ip[1] |= 0x30
		return true
	}
	if ip[1]&3 == 0 {
		return false
	}
	ip[1] |= 3
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum16(ip[:p.ipHeader], 0)))
	return true
}

// sum16 adds the big-endian 16-bit words of b, whose length is even, to sum.
func sum16(b []byte, sum uint32) uint32 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
