// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// reach decides whether a peer's flow may reach a destination from here; the error says why not.
type reach struct {
	allow    []Allow
	own      map[netip.Addr]bool     // this host's addresses
	ownPorts []uint16                // where this agent listens
	agents   map[netip.AddrPort]bool // where other agents listen
}

func (r *reach) check(dst netip.AddrPort) error {
	addr := dst.Addr().Unmap()
	switch {
	case !addr.IsValid() || addr.IsUnspecified() || dst.Port() == 0:
		return fmt.Errorf("%v is not a destination", dst)
	case addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%v is loopback, link-local or multicast, which is never reachable through a peer", dst)
	case r.own[addr] && slices.Contains(r.ownPorts, dst.Port()):
		return fmt.Errorf("%v is the agent's own", dst)
	case r.agents[netip.AddrPortFrom(addr, dst.Port())]:
		return fmt.Errorf("%v is an agent's own", dst)
	}
	for _, a := range r.allow {
		if len(a.Ports) > 0 && !slices.Contains(a.Ports, dst.Port()) || !a.Prefix.Contains(addr) {
			continue
		}
		if !r.own[addr] || a.Prefix.IsSingleIP() {
			return nil
		}
	}
	if r.own[addr] {
		return fmt.Errorf("%v is an address of the serving agent's own host, which `allow` does not name in full", dst)
	}
	return fmt.Errorf("%v is not in `allow`", dst)
}

// hostAge is how long this host's addresses are taken for unchanged.
const hostAge = time.Second

// hostAddrs knows this host's addresses.
type hostAddrs struct {
	mu    sync.Mutex
	asked time.Time
	addrs map[netip.Addr]bool // not changed once made
}

func (h *hostAddrs) get() (map[netip.Addr]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < hostAge {
		return h.addrs, nil
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this host's addresses: %w", err)
	}
	addrs := map[netip.Addr]bool{}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs[addr.Unmap()] = true
			}
		}
	}
	h.addrs, h.asked = addrs, time.Now()
	return addrs, nil
}
