// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"testing"
)

// What is ECN-capable is marked, with a header checksum that holds; what is not stays as it was.
func TestMarkCE(t *testing.T) {
	header := func(tos byte) []byte {
		raw := make([]byte, vnetHeader+40)
		ip := raw[vnetHeader:]
		ip[0], ip[1], ip[9] = 0x45, tos, protoTCP
		ip[20+12] = 5 << 4
		binary.BigEndian.PutUint16(ip[10:], ^fold(sum16(ip[:20], 0)))
		return raw
	}
	for tos, want := range map[byte]byte{0: 0, 1: 3, 2: 3, 3: 3, 0x28: 0x28, 0x2a: 0x2b} {
		p, ok := parse(header(tos))
		if !ok {
			t.Fatal("not taken for a packet")
		}
		marked := p.markCE()
		ip := p.raw[vnetHeader:]
		if marked != (tos&3 != 0) || ip[1] != want || fold(sum16(ip[:20], 0)) != 0xffff {
			t.Errorf("TOS %#x: marked %v, now %#x, want %#x, checksum %#x", tos, marked, ip[1], want, fold(sum16(ip[:20], 0)))
		}
	}
	six := make([]byte, vnetHeader+60)
	six[vnetHeader], six[vnetHeader+1], six[vnetHeader+6] = 0x6a, 0x20, protoTCP
	if p, ok := parse(six); !ok || !p.markCE() || p.raw[vnetHeader+1] != 0x30 || p.raw[vnetHeader] != 0x6a {
		t.Errorf("IPv6: %x", six[vnetHeader:vnetHeader+2])
	}
}
