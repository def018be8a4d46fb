// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// destination is what is known of a prefix.
type destination struct {
	where  uint32     // bpf.WhereRouted and so on
	source netip.Addr // of a direct connection; invalid: not known
}

// network is what netlink says of this namespace.
type network struct {
	links  map[int]netlink.Link
	addrs  []netlink.Addr
	routes []netlink.Route
	source func(netlink.Route) netip.Addr // the address that the kernel would choose for a route
}

// fixedDestinations need no netlink: nothing in them is ever worth a detour.
var fixedDestinations = map[string]uint32{
	"0.0.0.0/8":          bpf.WhereLocal,
	"127.0.0.0/8":        bpf.WhereLocal,
	"169.254.0.0/16":     bpf.WhereOnLink,
	"224.0.0.0/4":        bpf.WhereLocal,
	"255.255.255.255/32": bpf.WhereLocal,
	"::1/128":            bpf.WhereLocal,
	"fe80::/10":          bpf.WhereOnLink,
	"ff00::/8":           bpf.WhereLocal,
}

// destinations turns addresses and routes into the entries of tl_dest.
func (n network) destinations() map[netip.Prefix]destination {
	out := map[netip.Prefix]destination{}
	metric := map[netip.Prefix]int{}
	// The trie has one address space: without an entry of its own, IPv4 would fall to IPv6's default route.
	out[netip.PrefixFrom(netip.IPv4Unspecified(), 0)] = destination{where: bpf.WhereRouted}
	for _, r := range n.routes {
		p, ok := prefixOf(r)
		if !ok || r.Table == unix.RT_TABLE_LOCAL || r.Tos != 0 || r.Flags&unix.RTNH_F_DEAD != 0 {
			continue
		}
		if m, ok := metric[p]; ok && m <= r.Priority {
			continue
		}
		metric[p] = r.Priority
		out[p] = n.destination(r, p)
	}
	for _, r := range n.routes {
		if p, ok := prefixOf(r); ok && r.Table == unix.RT_TABLE_LOCAL {
			out[p] = destination{where: bpf.WhereLocal} // broadcast and multicast are nothing for TCP
		}
	}
	for _, a := range n.addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			ip = ip.Unmap()
			out[netip.PrefixFrom(ip, ip.BitLen())] = destination{where: bpf.WhereLocal}
		}
	}
	for p, where := range fixedDestinations {
		out[netip.MustParsePrefix(p)] = destination{where: where}
	}
	return out
}

// destination says what a route of the main table means for its prefix.
func (n network) destination(r netlink.Route, p netip.Prefix) destination {
	switch {
	case r.Type == unix.RTN_BLACKHOLE || r.Type == unix.RTN_UNREACHABLE || r.Type == unix.RTN_PROHIBIT:
		return destination{where: bpf.WhereLocal} // this host refuses it, and the application must see that
	case n.onLink(r, p):
		return destination{where: bpf.WhereOnLink}
	}
	return destination{where: bpf.WhereRouted, source: n.source(r)}
}

// onLink says whether a route leads to a network that this host is connected to. A route without a gateway over a
// point-to-point link (a tunnel, PPP) is as far as any other, except for the network of the link itself.
func (n network) onLink(r netlink.Route, p netip.Prefix) bool {
	if p.Bits() == 0 || r.Gw != nil || r.Via != nil || r.Encap != nil {
		return false
	}
	hops := []int{r.LinkIndex}
	for _, h := range r.MultiPath {
		if h.Gw != nil || h.Via != nil || h.Encap != nil {
			return false
		}
		hops = append(hops, h.LinkIndex)
	}
	if r.Protocol == unix.RTPROT_KERNEL {
		return true
	}
	return !slices.ContainsFunc(hops, func(i int) bool {
		link := n.links[i]
		return link != nil && link.Attrs().Flags&net.FlagPointToPoint != 0
	})
}

// prefixOf returns a route's destination; ok is false for tables and families that sockets do not see.
func prefixOf(r netlink.Route) (p netip.Prefix, ok bool) {
	switch r.Table {
	case unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT:
	default:
		return p, false
	}
	if r.Dst == nil {
		switch r.Family {
		case netlink.FAMILY_V4:
			return netip.PrefixFrom(netip.IPv4Unspecified(), 0), true
		case netlink.FAMILY_V6:
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0), true
		}
		return p, false
	}
	ip, ok := netip.AddrFromSlice(r.Dst.IP)
	if !ok {
		return p, false
	}
	if r.Family == netlink.FAMILY_V4 {
		ip = ip.Unmap()
	}
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(ip, bits).Masked(), true
}

// readNetwork asks netlink for everything. A family that this host does not have is empty.
func readNetwork() (network, error) {
	n := network{links: map[int]netlink.Link{}}
	links, err := again(netlink.LinkList)
	if err != nil {
		return n, fmt.Errorf("listing links: %w", err)
	}
	for _, link := range links {
		n.links[link.Attrs().Index] = link
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := again(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
		if err != nil && !noFamily(err) {
			return n, fmt.Errorf("listing addresses: %w", err)
		}
		routes, err := again(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil && !noFamily(err) {
			return n, fmt.Errorf("listing routes: %w", err)
		}
		n.addrs = append(n.addrs, addrs...)
		n.routes = append(n.routes, routes...)
	}
	n.source = sourceChooser(n.addrs)
	return n, nil
}

// again repeats a dump that a change interrupted; what the last try says must do, the change itself brings the next.
func again[T any](dump func() ([]T, error)) (out []T, err error) {
	for range 4 {
		out, err = dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, nil
}

func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}

// sourceChooser returns a function that finds the source address of a route: its own, or else what the kernel answers
// when asked, once for each next hop, or else some address of the interface.
func sourceChooser(addrs []netlink.Addr) func(netlink.Route) netip.Addr {
	type hop struct {
		link   int
		family int
		gw     string
	}
	known := map[hop]netip.Addr{}
	return func(r netlink.Route) netip.Addr {
		if a, ok := netip.AddrFromSlice(r.Src); ok {
			return a.Unmap()
		}
		h := hop{r.LinkIndex, r.Family, r.Gw.String()}
		if a, ok := known[h]; ok {
			return a
		}
		a := askSource(r)
		if !a.IsValid() {
			a = someAddress(addrs, r)
		}
		known[h] = a
		return a
	}
}

// askSource asks the kernel which source it would choose towards a route's prefix.
func askSource(r netlink.Route) netip.Addr {
	p, ok := prefixOf(r)
	if !ok {
		return netip.Addr{}
	}
	probe := p.Addr()
	if p.Bits() == 0 { // any address will do that no longer prefix is likely to hold
		probe = netip.MustParseAddr("192.0.2.1")
		if r.Family == netlink.FAMILY_V6 {
			probe = netip.MustParseAddr("2001:db8::1")
		}
	}
	o := netlink.RouteGetOptions{OifIndex: r.LinkIndex}
	if r.LinkIndex == 0 && len(r.MultiPath) > 0 {
		o.OifIndex = r.MultiPath[0].LinkIndex
	}
	routes, err := netlink.RouteGetWithOptions(probe.AsSlice(), &o)
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap()
}

func someAddress(addrs []netlink.Addr, r netlink.Route) netip.Addr {
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		if ok && a.LinkIndex == r.LinkIndex && ip.Is4() == (r.Family == netlink.FAMILY_V4) && a.Scope == unix.RT_SCOPE_UNIVERSE {
			return ip
		}
	}
	return netip.Addr{}
}

// orderedPrefixes puts first what must fit into the trie if not everything does: this host, then what is on-link, then
// routes from the widest.
func orderedPrefixes(m map[netip.Prefix]destination) []netip.Prefix {
	rank := map[uint32]int{bpf.WhereLocal: 0, bpf.WhereOnLink: 1, bpf.WhereRouted: 2}
	return slices.SortedFunc(maps.Keys(m), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(rank[m[a].where], rank[m[b].where]), cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
	})
}
