// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/vmtest/lab/internal/drop"
)

// router is the namespace between the sites of a link in the kernel. Packets are lost where they come in from a site, and
// delayed where they go out to the other: a full queue at the sender's own device would be seen by the sender's TCP.
type router struct{ *Namespace }

func (l *Lab) newRouter() (*router, error) {
	cg, err := l.cgroup.child("router")
	if err != nil {
		return nil, err
	}
	ns, err := l.newNamespace(cg)
	if err != nil {
		return nil, err
	}
	return &router{ns}, ns.onThread(func() error {
		if err := l.basics(); err != nil {
			return err
		}
		return forward(!l.opts.NoIPv6)
	})
}

// deviceTo is the router's device on a site's side.
func deviceTo(s *Site) string { return "to-" + s.Name }

// Addresses of the devices. Both ends know each other's, so that nobody asks for it through the delay.
func (s *Site) mac() net.HardwareAddr       { return net.HardwareAddr{2, 0x81, 0, 0, 1, s.number} }
func (s *Site) routerMAC() net.HardwareAddr { return net.HardwareAddr{2, 0x81, 0, 0, 2, s.number} }

// join makes the site's device, whose other end is the router's.
func (r *router) join(s *Site) error {
	return r.onThread(func() error {
		attrs := netlink.LinkAttrs{Name: deviceTo(s), HardwareAddr: s.routerMAC(), MTU: s.lab.opts.MTU}
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: wanDevice, PeerHardwareAddr: s.mac(), PeerNamespace: netlink.NsFd(s.netns.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a veth: %w", err)
		}
		return onePacketEach(veth)
	})
}

// routeTo has the router reach everything of a site through the site itself, and the site reach the router, as gateways of
// which nobody needs to ask where they are.
func (r *router) routeTo(s *Site) error {
	gateways := s.gateways()
	err := r.onThread(func() error {
		if err := addressAndUp(deviceTo(s), gateways); err != nil {
			return err
		}
		for _, a := range s.Addrs() {
			if err := neighbour(deviceTo(s), a, s.mac()); err != nil {
				return err
			}
		}
		for _, p := range s.nets() {
			if err := r.route(s, p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.onThread(func() error {
		for _, g := range gateways {
			if err := neighbour(wanDevice, g.Addr(), s.routerMAC()); err != nil {
				return err
			}
		}
		return nil
	})
}

// route leads to the site's networks, or others that it has. On the router's thread.
func (r *router) route(s *Site, to netip.Prefix) error {
	via := s.Addr4
	if to.Addr().Is6() {
		via = s.Addr6
	}
	return routeVia(deviceTo(s), to, via)
}

// gateways are the router's own addresses on the site's side.
func (s *Site) gateways() (all []netip.Prefix) {
	for _, p := range s.nets() {
		a := hostIn(p, s.gateway)
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

func neighbour(device string, a netip.Addr, mac net.HardwareAddr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	n := &netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac}
	if err := netlink.NeighSet(n); err != nil {
		return fmt.Errorf("entering neighbour %s of %s: %w", a, device, err)
	}
	return nil
}

// onePacketEach has the stack hand a device single packets, never several as one.
func onePacketEach(l netlink.Link) error {
	if err := netlink.LinkSetGSOMaxSegs(l, 1); err != nil {
		return fmt.Errorf("limiting %s to one packet at a time: %w", l.Attrs().Name, err)
	}
	return nil
}

// netemWay is one direction through the router.
type netemWay struct {
	router *router
	egress netlink.Link
	drop   *drop.Dropper
	rule   drop.Rule
}

// way makes the direction from one site to another.
func (r *router) way(from, to *Site, s shape, key uint64) (_ *netemWay, err error) {
	w := &netemWay{router: r, rule: drop.Rule{Key: key, Run: 1}}
	if w.drop, err = drop.Load(); err != nil {
		return nil, err
	}
	err = r.onThread(func() error {
		ingress, err := netlink.LinkByName(deviceTo(from))
		if err != nil {
			return fmt.Errorf("finding %s: %w", deviceTo(from), err)
		}
		if w.egress, err = netlink.LinkByName(deviceTo(to)); err != nil {
			return fmt.Errorf("finding %s: %w", deviceTo(to), err)
		}
		return w.drop.Attach(ingress)
	})
	if err == nil {
		err = w.reshape(s)
	}
	if err != nil {
		return nil, errors.Join(err, w.drop.Close())
	}
	return w, nil
}

func (w *netemWay) reshape(s shape) error {
	o := s.odds()
	w.rule.AfterPassed, w.rule.AfterLost, w.rule.DataOnly, w.rule.Down = o.afterPassed, o.afterLost, s.dataOnly, s.down
	return errors.Join(w.drop.Set(w.rule), w.router.onThread(func() error { return setNetem(w.egress, s.netem()) }))
}

func (w *netemWay) restart(key uint64) error {
	w.rule.Key = key
	w.rule.Run++
	return w.drop.Set(w.rule)
}

// stats are what the program and netem counted. Neither knows what was sent twice.
func (w *netemWay) stats() (st Stats, err error) {
	counts, err := w.drop.Counts()
	if err != nil {
		return st, err
	}
	st = Stats{Packets: counts.Packets, Segments: counts.Packets, Bytes: counts.Bytes, Lost: counts.Lost, DownDrops: counts.DownDrops}
	err = w.router.onThread(func() error {
		st.Delivered, st.QueueDrops, err = netemStats(w.egress)
		return err
	})
	return st, err
}

func (w *netemWay) stop() { _ = w.drop.Close() }

// routeVia leads to a prefix through a gateway that counts as a neighbour whatever its address. On a namespace's thread.
func routeVia(device string, to netip.Prefix, via netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to.Masked()), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("routing %s via %s: %w", to, via, err)
	}
	return nil
}
