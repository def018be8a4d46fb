// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	wanDevice = "wan0"
	wanMTU    = 1500 // where Options.MTU does not say otherwise
	// The sender's device queue must never be the one that drops: the link could not see what was lost there, and
	// would take its retransmission for a first transmission.
	wanTxQueue = 10000
)

// Site is one end of the link.
type Site struct {
	*Namespace
	Name         string       // "a" or "b"
	Addr4, Addr6 netip.Addr   // on wan0; invalid in a lab without that family
	Net4, Net6   netip.Prefix // what the other site routes here

	other   *Site
	number  byte
	tun     *os.File // in-process
	gateway uint16   // host part of the next hop, which is pretended in-process
	inner   int      // namespaces made so far behind the site
}

func (l *Lab) newSite(name string, number byte) (*Site, error) {
	cg, err := l.cgroup.child(name)
	if err != nil {
		return nil, err
	}
	ns, err := l.newNamespace(cg)
	if err != nil {
		return nil, err
	}
	s := &Site{Namespace: ns, Name: name, number: number, gateway: 254}
	net4, net6 := sitePrefixes(number)
	if !l.opts.NoIPv4 {
		s.Net4, s.Addr4 = net4, hostIn(net4, 1)
	}
	if !l.opts.NoIPv6 {
		s.Net6, s.Addr6 = net6, hostIn(net6, 1)
	}
	l.sites = append(l.sites, s)
	return s, s.onThread(s.configure)
}

// Addrs are the site's addresses on wan0, IPv4 first.
func (s *Site) Addrs() []netip.Addr {
	return slices.DeleteFunc([]netip.Addr{s.Addr4, s.Addr6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// nets are the prefixes of the families that the lab has.
func (s *Site) nets() []netip.Prefix {
	return slices.DeleteFunc([]netip.Prefix{s.Net4, s.Net6}, func(p netip.Prefix) bool { return !p.IsValid() })
}

func (s *Site) configure() error {
	if err := s.lab.basics(); err != nil {
		return err
	}
	if err := s.makeDevice(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(wanDevice)
	if err != nil {
		return fmt.Errorf("finding %s: %w", wanDevice, err)
	}
	if s.lab.opts.NoGSO {
		if err := onePacketEach(link); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetMTU(link, s.lab.opts.MTU); err != nil {
		return fmt.Errorf("setting the MTU: %w", err)
	}
	if err := netlink.LinkSetTxQLen(link, wanTxQueue); err != nil {
		return fmt.Errorf("setting the queue length: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", wanDevice, err)
	}
	for _, p := range s.nets() {
		if err := addAddress(link, netip.PrefixFrom(hostIn(p, 1), p.Bits())); err != nil {
			return err
		}
	}
	return nil
}

// makeDevice makes wan0 in the site's namespace.
func (s *Site) makeDevice() (err error) {
	if s.lab.router != nil {
		return s.lab.router.join(s)
	}
	s.tun, err = openTUN(wanDevice, !s.lab.opts.NoGSO)
	return err
}

// routeToOther goes through a next hop, as it would on a real host: a destination without one counts as on-link, and
// those are never steered. In-process the device has no neighbours, so nobody needs to answer for the address.
func (s *Site) routeToOther() error {
	return s.onThread(func() error {
		for _, p := range s.other.nets() {
			if err := s.route(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Site) route(to netip.Prefix) error {
	own := s.Net4
	if to.Addr().Is6() {
		own = s.Net6
	}
	return routeVia(wanDevice, to, hostIn(own, s.gateway))
}

// AddAddress gives the site one more address on wan0, and the other site a route to it where it has none.
func (s *Site) AddAddress(p netip.Prefix) error {
	err := s.onThread(func() error {
		link, err := netlink.LinkByName(wanDevice)
		if err != nil {
			return fmt.Errorf("finding %s: %w", wanDevice, err)
		}
		return addAddress(link, p)
	})
	if err != nil || s.Net4.Contains(p.Addr()) || s.Net6.Contains(p.Addr()) {
		return err
	}
	if r := s.lab.router; r != nil {
		if err := r.onThread(func() error { return r.route(s, p) }); err != nil {
			return fmt.Errorf("router: %w", err)
		}
	}
	return s.other.onThread(func() error { return s.other.route(p) })
}

// NewNamespace makes a namespace behind the site, joined to it by a veth and reached from the other site, whose
// processes run in the site's cgroup: the place of a container.
func (s *Site) NewNamespace() (*Namespace, netip.Addr, error) {
	n, err := s.lab.newNamespace(&cgroup{dir: s.Cgroup, below: s.CgroupPath})
	if err != nil {
		return nil, netip.Addr{}, err
	}
	s.inner++
	near, far := s.innerNets(s.inner)
	name := fmt.Sprintf("inner%d", s.inner)
	err = s.onThread(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0",
			PeerNamespace: netlink.NsFd(n.netns.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a veth: %w", err)
		}
		if err := forward(s.Net6.IsValid()); err != nil {
			return err
		}
		return addressAndUp(name, near)
	})
	if err == nil {
		err = n.onThread(func() error { return s.lab.configureInner(near, far) })
	}
	return n, far[0].Addr(), err
}

// innerNets gives the addresses of the two ends of the nth veth, taken from the site's own networks, so that the other
// site's routes cover them.
func (s *Site) innerNets(n int) (near, far []netip.Prefix) {
	low := uint16(128 + 4*(n-1))
	if s.Net4.IsValid() {
		near = append(near, netip.PrefixFrom(hostIn(s.Net4, low+1), 30))
		far = append(far, netip.PrefixFrom(hostIn(s.Net4, low+2), 30))
	}
	if s.Net6.IsValid() {
		near = append(near, netip.PrefixFrom(hostIn(s.Net6, low<<4+1), 124))
		far = append(far, netip.PrefixFrom(hostIn(s.Net6, low<<4+2), 124))
	}
	return near, far
}

// forward makes the calling thread's namespace a router.
func forward(v6 bool) error {
	if err := sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if !v6 {
		return nil
	}
	return sysctl("net/ipv6/conf/all/forwarding", "1")
}

func (l *Lab) configureInner(near, far []netip.Prefix) error {
	if err := l.basics(); err != nil {
		return err
	}
	if err := addressAndUp("eth0", far); err != nil {
		return err
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("finding eth0: %w", err)
	}
	for _, p := range near {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if p.Addr().Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(all), Gw: p.Addr().AsSlice()}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("default route via %s: %w", p.Addr(), err)
		}
	}
	return nil
}

func addressAndUp(device string, addrs []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	for _, p := range addrs {
		if err := addAddress(link, p); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", device, err)
	}
	return nil
}

func (s *Site) closeDevice() {
	if s.tun != nil {
		_ = s.tun.Close() // the device goes with its descriptor
	}
}

// basics is what every namespace of the lab has: loopback, addresses that are usable at once, and no memory of earlier
// connections, which would make the second of two equal transfers start from another threshold.
func (l *Lab) basics() error {
	for _, s := range [][2]string{
		{"net/ipv4/tcp_no_metrics_save", "1"},
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/default/router_solicitations", "0"},
	} {
		if err := sysctl(s[0], s[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if l.opts.NoIPv4 {
		return removeIPv4(lo)
	}
	return nil
}

// removeIPv4 takes away the address that the kernel itself gives the loopback.
func removeIPv4(link netlink.Link) error {
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing IPv4 addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range addrs {
		if err := netlink.AddrDel(link, &a); err != nil {
			return fmt.Errorf("removing %s from %s: %w", a.IPNet, link.Attrs().Name, err)
		}
	}
	return nil
}

// sysctl writes a setting of the calling thread's network namespace.
func sysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	return nil
}

func addAddress(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return fmt.Errorf("address %s: %w", p, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
