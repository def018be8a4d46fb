// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
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
	found := make([][]netip.AddrPort, len(c.Peers))
	var wg sync.WaitGroup
	for i, p := range c.Peers {
		if p.Address == "" {
			continue
		}
		wg.Go(func() { // at once: a name server that is down costs one time-out, not one a peer
			var err error
			if found[i], err = resolve(ctx, p.Address); err != nil {
				a.log.Warn("a peer's address cannot be resolved", "peer", p.Name, "err", err)
			}
		})
	}
	wg.Wait()
	addrs := slices.Concat(found...)
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}

func resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, err
	}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else {
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap().WithZone(""), uint16(port))
	}
	return addrs, nil
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
