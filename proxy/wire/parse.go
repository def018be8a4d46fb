// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// parser reads fields until one does not fit; from then on it gives zeros and err tells. What follows the last known
// field is skipped: it belongs to a higher minor version.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) err(t Type) error {
	if p.bad {
		return fmt.Errorf("%w: %v", ErrMalformed, t)
	}
	return nil
}

func (p *parser) bytes(n int) []byte {
	if p.bad || n > len(p.b) {
		p.bad = true
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) byte() byte {
	if v := p.bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (p *parser) uint16() uint16 {
	if v := p.bytes(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (p *parser) uint64() uint64 {
	if v := p.bytes(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if p.bad || n <= 0 {
		p.bad = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) uint32() uint32 {
	v := p.uvarint()
	if v > math.MaxUint32 {
		p.bad = true
		return 0
	}
	return uint32(v)
}

// string reads a string of at most limit bytes. It ends up in logs, so control characters do not survive.
func (p *parser) string(limit int) string {
	n := p.uvarint()
	if n > uint64(limit) {
		p.bad = true
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(p.bytes(int(n))), "?"))
}

// detail reads what only a codec understands. It is a copy: payloads are valid for a moment only.
func (p *parser) detail() []byte {
	n := p.uvarint()
	if n > codec.MaxDetail {
		p.bad = true
		return nil
	}
	return append([]byte(nil), p.bytes(int(n))...)
}

// addrPort reads an address family (0, 4 or 6), the address and the port. Family 0 is an address that is not known.
func (p *parser) addrPort() netip.AddrPort {
	var addr netip.Addr
	switch family := p.byte(); family {
	case 0:
		return netip.AddrPort{}
	case 4:
		if v := p.bytes(4); v != nil {
			addr = netip.AddrFrom4([4]byte(v))
		}
	case 6:
		if v := p.bytes(16); v != nil {
			addr = netip.AddrFrom16([16]byte(v)).Unmap()
		}
	default:
		p.bad = true
	}
	port := p.uint16()
	if p.bad {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, port)
}

func appendAddrPort(dst []byte, a netip.AddrPort) []byte {
	addr := a.Addr().Unmap()
	switch {
	case !addr.IsValid():
		return append(dst, 0)
	case addr.Is4():
		dst = append(dst, 4)
	default:
		dst = append(dst, 6)
	}
	dst = append(dst, addr.WithZone("").AsSlice()...)
	return binary.BigEndian.AppendUint16(dst, a.Port())
}

// appendString cuts what is too long for any reader.
func appendString(dst []byte, s string) []byte {
	if len(s) > 255 {
		s = s[:255]
	}
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
