// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"net/netip"
)

// The entries of the maps, under the names that the rest of trunkline uses. Fields carry their units in their names;
// maps.h says what each means.
type (
	Addr           = layoutTlAddr
	Agent          = layoutTlAgent
	Bypass         = layoutTlBypass
	Choice         = layoutTlChoice
	ClassPort      = layoutTlClassPort
	Dest           = layoutTlDest
	Endpoint       = layoutTlEndpoint
	ExcludeKey     = layoutTlExcludeKey
	Flow           = layoutTlFlow
	FlowWindow     = layoutTlFlowWindow
	Iface          = layoutTlIface
	LossEvent      = layoutTlLossEvent
	Orig           = layoutTlOrig
	Own            = layoutTlOwn
	Path           = layoutTlPath
	PathKey        = layoutTlPathKey
	Prefix         = layoutTlPrefix
	Reserved       = layoutTlReserved
	ReservedPrefix = layoutTlReservedPrefix
	ReservedUse    = layoutTlReservedUse
	Rule           = layoutTlRule
	Sock           = layoutTlSock
)

// CCNameMax is the room for a congestion control's name, its terminating zero included.
const CCNameMax = len(Rule{}.Congestion)

// Priority says which of a flow's packets are marked.
type Priority uint8

// The classes of priority.
const (
	PriorityOff        = Priority(layoutTlPriorityTL_PRIORITY_OFF)
	PriorityRetransmit = Priority(layoutTlPriorityTL_PRIORITY_RETRANSMIT)
	PrioritySlowStart  = Priority(layoutTlPriorityTL_PRIORITY_SLOW_START) // retransmissions and early slow start
)

// String returns the priority as the configuration writes it.
func (p Priority) String() string {
	switch p {
	case PriorityRetransmit:
		return "retransmit"
	case PrioritySlowStart:
		return "retransmit+slow-start"
	}
	return "off"
}

// Where a destination is, in Dest.
const (
	WhereRouted = uint32(layoutTlWhereTL_WHERE_ROUTED)
	WhereLocal  = uint32(layoutTlWhereTL_WHERE_LOCAL)
	WhereOnLink = uint32(layoutTlWhereTL_WHERE_ONLINK)
)

// What an ExcludeKey's Id is.
const (
	ExcludeCgroup = uint32(layoutTlExcludeKindTL_EXCLUDE_CGROUP)
	ExcludeUser   = uint32(layoutTlExcludeKindTL_EXCLUDE_USER)
)

// FlowKind says whose connection a Flow is.
type FlowKind uint8

// The kinds of flows.
const (
	FlowPlain   = FlowKind(layoutTlFlowKindTL_FLOW_PLAIN)   // an application's, direct
	FlowSteered = FlowKind(layoutTlFlowKindTL_FLOW_STEERED) // an application's, to the engine
	FlowLeg     = FlowKind(layoutTlFlowKindTL_FLOW_LEG)     // the agent's, to or from a peer
	FlowDialled = FlowKind(layoutTlFlowKindTL_FLOW_DIALLED) // the agent's, to a destination
)

// String returns the kind's name in tables and JSON.
func (k FlowKind) String() string {
	switch k {
	case FlowSteered:
		return "steered"
	case FlowLeg:
		return "leg"
	case FlowDialled:
		return "dialled"
	}
	return "plain"
}

// AddrFrom returns an address as the maps hold it: 16 bytes, IPv4 mapped. The invalid address becomes all zero.
func AddrFrom(a netip.Addr) Addr {
	if !a.IsValid() {
		return Addr{}
	}
	return Addr{B: a.As16()}
}

// Netip returns the address, IPv4 as IPv4; ok is false where the maps say nothing (all zero).
func (a Addr) Netip() (addr netip.Addr, ok bool) {
	if a.B == [16]byte{} {
		return netip.Addr{}, false
	}
	return netip.AddrFrom16(a.B).Unmap(), true
}

// PrefixFrom returns a prefix as the tries hold it: masked, and an IPv4 prefix 96 bits longer.
func PrefixFrom(p netip.Prefix) Prefix {
	p = p.Masked()
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return Prefix{Prefixlen: uint32(bits), Addr: AddrFrom(p.Addr())}
}

// Netip returns the prefix, one within ::ffff:0:0/96 as IPv4.
func (p Prefix) Netip() netip.Prefix {
	addr, bits := netip.AddrFrom16(p.Addr.B), int(p.Prefixlen)
	if addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	return netip.PrefixFrom(addr, bits)
}

// EndpointFrom returns an address and port as the maps hold them.
func EndpointFrom(a netip.AddrPort) Endpoint {
	return Endpoint{Addr: AddrFrom(a.Addr()), Port: a.Port()}
}

// Netip returns the prefix of a path, one within ::ffff:0:0/96 as IPv4.
func (k PathKey) Netip() netip.Prefix {
	return Prefix{Prefixlen: k.PrefixBits, Addr: k.Prefix}.Netip()
}

// PathKeyFrom returns the path of a prefix, masked, and of the peer there (0: none), as the maps hold it.
func PathKeyFrom(p netip.Prefix, peerID uint32) PathKey {
	k := PrefixFrom(p)
	return PathKey{Prefix: k.Addr, PrefixBits: k.Prefixlen, PeerId: peerID}
}

// Path returns the prefix of the path that a flow counts for; ok is false where it counts for none: the engine's ends, and
// legs that carry no flow of a known peer.
func (f *Flow) Path() (p netip.Prefix, ok bool) {
	if f.PathBits == 0 || FlowKind(f.Kind) == FlowLeg && f.PeerId == 0 {
		return netip.Prefix{}, false
	}
	return Prefix{Prefixlen: uint32(f.PathBits), Addr: f.RemoteAddr}.Netip().Masked(), true
}

// CCName returns a congestion control's name from its fixed room in Rule, Flow or Choice.
func CCName(c [16]int8) string {
	b := make([]byte, 0, len(c))
	for _, x := range c {
		b = append(b, byte(x))
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}

// CCNameFrom puts a name into its fixed room, cut where it is too long.
func CCNameFrom(name string) (c [16]int8) {
	for i := 0; i < len(name) && i < len(c)-1; i++ {
		c[i] = int8(name[i])
	}
	return c
}
