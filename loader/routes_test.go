// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// Links of the table test.
const (
	ethernet = 2
	tunnel   = 3
)

func route(dst string, link int, change ...func(*netlink.Route)) netlink.Route {
	r := netlink.Route{LinkIndex: link, Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Family: netlink.FAMILY_V4}
	p := netip.MustParsePrefix(dst)
	if p.Addr().Is6() {
		r.Family = netlink.FAMILY_V6
	}
	r.Dst = &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	for _, c := range change {
		c(&r)
	}
	return r
}

func via(gw string) func(*netlink.Route) { return func(r *netlink.Route) { r.Gw = net.ParseIP(gw) } }
func metric(m int) func(*netlink.Route)  { return func(r *netlink.Route) { r.Priority = m } }
func table(t int) func(*netlink.Route)   { return func(r *netlink.Route) { r.Table = t } }
func kind(t int) func(*netlink.Route)    { return func(r *netlink.Route) { r.Type = t } }
func flags(f int) func(*netlink.Route)   { return func(r *netlink.Route) { r.Flags = f } }
func byKernel(r *netlink.Route)          { r.Protocol = unix.RTPROT_KERNEL }
func noDst(r *netlink.Route)             { r.Dst = nil }

func TestDestinations(t *testing.T) {
	links := map[int]netlink.Link{
		ethernet: &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ethernet}},
		tunnel:   &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: tunnel, Flags: net.FlagPointToPoint}},
	}
	source := netip.MustParseAddr("10.0.0.1")
	local := destination{where: bpf.WhereLocal}
	onLink := destination{where: bpf.WhereOnLink}
	routed := destination{where: bpf.WhereRouted, source: source}
	for _, c := range []struct {
		name   string
		routes []netlink.Route
		addrs  []string
		prefix string
		want   destination
	}{
		{"own address", nil, []string{"10.0.0.1/24"}, "10.0.0.1/32", local},
		{"own IPv6 address", nil, []string{"fd00::1/64"}, "fd00::1/128", local},
		{"the loopback network", nil, nil, "127.0.0.0/8", local},
		{"no default route", nil, nil, "0.0.0.0/0", destination{where: bpf.WhereRouted}},
		{"default", []netlink.Route{route("0.0.0.0/0", ethernet, via("10.0.0.254"))}, nil, "0.0.0.0/0", routed},
		{"default without a prefix", []netlink.Route{route("0.0.0.0/0", ethernet, via("10.0.0.254"), noDst)}, nil, "0.0.0.0/0", routed},
		{"default over a point-to-point link", []netlink.Route{route("0.0.0.0/0", tunnel)}, nil, "0.0.0.0/0", routed},
		{"the link's network", []netlink.Route{route("10.0.0.0/24", ethernet, byKernel)}, nil, "10.0.0.0/24", onLink},
		{"a tunnel's own network", []netlink.Route{route("10.9.0.0/24", tunnel, byKernel)}, nil, "10.9.0.0/24", onLink},
		{"more on the link", []netlink.Route{route("10.1.0.0/24", ethernet)}, nil, "10.1.0.0/24", onLink},
		{"behind a tunnel", []netlink.Route{route("10.2.0.0/16", tunnel)}, nil, "10.2.0.0/16", routed},
		{"behind a gateway", []netlink.Route{route("10.3.0.0/16", ethernet, via("10.0.0.254"))}, nil, "10.3.0.0/16", routed},
		{"the lower metric wins", []netlink.Route{
			route("10.4.0.0/16", ethernet, via("10.0.0.254"), metric(200)), route("10.4.0.0/16", ethernet, metric(100)),
		}, nil, "10.4.0.0/16", onLink},
		{"a dead next hop does not count", []netlink.Route{
			route("10.4.0.0/16", ethernet, metric(100), flags(unix.RTNH_F_DEAD)), route("10.4.0.0/16", tunnel, metric(200)),
		}, nil, "10.4.0.0/16", routed},
		{"unreachable", []netlink.Route{route("10.5.0.0/16", 0, kind(unix.RTN_UNREACHABLE))}, nil, "10.5.0.0/16", local},
		{"a whole network of this host", []netlink.Route{route("10.6.0.0/16", 1, table(unix.RT_TABLE_LOCAL), kind(unix.RTN_LOCAL))},
			nil, "10.6.0.0/16", local},
		{"another table", []netlink.Route{route("0.0.0.0/0", ethernet, table(100))}, nil, "0.0.0.0/0", destination{where: bpf.WhereRouted}},
		{"multipath", []netlink.Route{route("10.7.0.0/16", 0, func(r *netlink.Route) {
			r.MultiPath = []*netlink.NexthopInfo{{LinkIndex: ethernet, Gw: net.ParseIP("10.0.0.254")}, {LinkIndex: tunnel}}
		})}, nil, "10.7.0.0/16", routed},
		{"IPv6 behind a gateway", []netlink.Route{route("fd02::/64", ethernet, via("fe80::1"))}, nil, "fd02::/64", routed},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := network{links: links, routes: c.routes, source: func(netlink.Route) netip.Addr { return source }}
			for _, a := range c.addrs {
				addr, err := netlink.ParseAddr(a)
				if err != nil {
					t.Fatal(err)
				}
				n.addrs = append(n.addrs, *addr)
			}
			got, ok := n.destinations()[netip.MustParsePrefix(c.prefix)]
			if !ok || got != c.want {
				t.Errorf("%s: %+v, %v; want %+v", c.prefix, got, ok, c.want)
			}
		})
	}
}

func TestOrderedPrefixes(t *testing.T) {
	p := netip.MustParsePrefix
	got := orderedPrefixes(map[netip.Prefix]destination{
		p("10.0.0.0/8"):  {where: bpf.WhereRouted},
		p("0.0.0.0/0"):   {where: bpf.WhereRouted},
		p("10.1.0.0/16"): {where: bpf.WhereOnLink},
		p("10.1.0.1/32"): {where: bpf.WhereLocal},
	})
	want := []netip.Prefix{p("10.1.0.1/32"), p("10.1.0.0/16"), p("0.0.0.0/0"), p("10.0.0.0/8")}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}
