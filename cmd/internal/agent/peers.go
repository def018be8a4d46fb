// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

const (
	resolveTimeout = 2 * time.Second
	resolveEvery   = time.Minute
)

// resolvePeers gives the addresses of the peers' listeners, which are never steered. A name that cannot be resolved now is
// tried again by followPeers: the peer cannot be reached by it meanwhile either.
func (a *agent) resolvePeers(ctx context.Context, c *config.Config) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, p := range c.Peers {
		if p.Address == "" {
			continue
		}
		host, port, err := net.SplitHostPort(p.Address)
		if err != nil {
			continue // the configuration was checked
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			continue
		}
		found, err := resolve(ctx, host)
		if err != nil {
			a.log.Warn("a peer's address cannot be resolved", "peer", p.Name, "err", err)
		}
		for _, ip := range found {
			addrs = append(addrs, netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(n)))
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}

func resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// followPeers keeps up with names that come to mean other addresses.
func (a *agent) followPeers(ctx context.Context) error {
	t := time.NewTicker(resolveEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		a.mu.Lock()
		c, before := a.config, a.addrs
		a.mu.Unlock()
		if !slices.ContainsFunc(c.Peers, named) {
			continue
		}
		now := a.resolvePeers(ctx, c)
		if slices.Equal(now, before) {
			continue
		}
		a.mu.Lock()
		if a.config == c { // else a reload has resolved them meanwhile
			if err := a.loader.Apply(a.table.Rules(), now); err != nil {
				a.log.Warn("entering the peers' new addresses", "err", err)
			} else {
				a.addrs = now
			}
		}
		a.mu.Unlock()
	}
}

// named tells whether a peer's address is a name.
func named(p config.Peer) bool {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}
