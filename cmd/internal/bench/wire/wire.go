// SPDX-License-Identifier: Apache-2.0

// Package wire joins a lab's sites by a veth, for benches whose loads a link in user space would slow down.
package wire

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/vmtest/lab"
)

const device = "wire0"

// The wire joins the sites beside the lab's own link: a veth, which has no rate and whose work is all the kernel's. The
// services have an address behind the next hop, for on-link destinations are never steered.
var (
	Near       = netip.MustParsePrefix("10.82.0.1/30")
	far        = netip.MustParsePrefix("10.82.0.2/30")
	Service    = netip.MustParseAddr("10.82.2.1")
	ServiceNet = netip.MustParsePrefix("10.82.2.0/24")
)

// Lay makes the wire and gives the services their address.
func Lay(nearSite, farSite *lab.Site) error {
	ns, err := os.Open(farSite.NetnsPath())
	if err != nil {
		return fmt.Errorf("finding the far site's namespace: %w", err)
	}
	defer ns.Close()
	err = nearSite.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(ns.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a veth: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := farSite.Do(func() error { return end(far, netip.PrefixFrom(Service, 32)) }); err != nil {
		return fmt.Errorf("the wire's far end: %w", err)
	}
	err = nearSite.Do(func() error {
		if err := end(Near); err != nil {
			return err
		}
		return routeToService()
	})
	if err != nil {
		return fmt.Errorf("the wire's near end: %w", err)
	}
	return nil
}

func end(addresses ...netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	for _, a := range addresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", device, err)
	}
	// Closed connections keep their port for a minute: the default range would be used up within seconds.
	const ports = "/proc/sys/net/ipv4/ip_local_port_range"
	if err := os.WriteFile(ports, []byte("10000 65535"), 0); err != nil {
		return fmt.Errorf("widening the range of ports: %w", err)
	}
	return nil
}

func routeToService() error {
	r := &netlink.Route{Dst: ipNet(ServiceNet), Gw: far.Addr().AsSlice()}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("routing %s: %w", ServiceNet, err)
	}
	return nil
}

// Packets counts what has crossed the wire in both directions, as the device saw it: a super-packet is one.
func Packets(nearSite *lab.Site) (n uint64, err error) {
	err = nearSite.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return fmt.Errorf("counting packets of %s: %w", device, err)
		}
		n = link.Attrs().Statistics.TxPackets + link.Attrs().Statistics.RxPackets
		return nil
	})
	return n, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
