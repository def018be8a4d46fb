// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// The wire joins the sites beside the lab's own link: a veth, which has no rate and whose work is all the kernel's. The
// services have an address behind the next hop, for on-link destinations are never steered.
const wireDevice = "wire0"

var (
	wireNear   = netip.MustParsePrefix("10.82.0.1/30")
	wireFar    = netip.MustParsePrefix("10.82.0.2/30")
	service    = netip.MustParseAddr("10.82.2.1")
	serviceNet = netip.MustParsePrefix("10.82.2.0/24")
)

// layWire makes the wire and gives the services their address.
func layWire(near, far *lab.Site) error {
	ns, err := os.Open(far.NetnsPath())
	if err != nil {
		return fmt.Errorf("finding the far site's namespace: %w", err)
	}
	defer ns.Close()
	err = near.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: wireDevice}, PeerName: wireDevice, PeerNamespace: netlink.NsFd(ns.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a veth: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := far.Do(func() error { return wireEnd(wireFar, netip.PrefixFrom(service, 32)) }); err != nil {
		return fmt.Errorf("the wire's far end: %w", err)
	}
	err = near.Do(func() error {
		if err := wireEnd(wireNear); err != nil {
			return err
		}
		return routeToService()
	})
	if err != nil {
		return fmt.Errorf("the wire's near end: %w", err)
	}
	return nil
}

func wireEnd(addresses ...netip.Prefix) error {
	link, err := netlink.LinkByName(wireDevice)
	if err != nil {
		return fmt.Errorf("finding %s: %w", wireDevice, err)
	}
	for _, a := range addresses {
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", wireDevice, err)
	}
	// Closed connections keep their port for a minute: the default range would be used up within seconds.
	const ports = "/proc/sys/net/ipv4/ip_local_port_range"
	if err := os.WriteFile(ports, []byte("10000 65535"), 0); err != nil {
		return fmt.Errorf("widening the range of ports: %w", err)
	}
	return nil
}

func routeToService() error {
	r := &netlink.Route{Dst: ipNet(serviceNet), Gw: wireFar.Addr().AsSlice()}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("routing %s: %w", serviceNet, err)
	}
	return nil
}

// wirePackets counts what has crossed the wire in both directions, as the device saw it: a super-packet is one.
func wirePackets(near *lab.Site) (n uint64, err error) {
	err = near.Do(func() error {
		link, err := netlink.LinkByName(wireDevice)
		if err != nil {
			return fmt.Errorf("counting packets of %s: %w", wireDevice, err)
		}
		n = link.Attrs().Statistics.TxPackets + link.Attrs().Statistics.RxPackets
		return nil
	})
	return n, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
