// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// Changes come in bursts, and reading a large table takes its time: the pause before reading grows with it.
const (
	followPause = 50 * time.Millisecond
	followBusy  = 10              // reading may take up a tenth of the time
	followAtAll = 1 * time.Minute // not every change of routing is announced
	followRetry = 1 * time.Second
)

// syncDestinations brings tl_dest up to date with addresses and routes: new entries first, then stale ones away.
func (l *Loader) syncDestinations(n network) error {
	l.destMu.Lock()
	defer l.destMu.Unlock()
	m, want := l.maps["tl_dest"], n.destinations()
	for _, p := range orderedPrefixes(want) {
		d := want[p]
		if old, ok := l.dests[p]; ok && old == d {
			continue
		}
		err := m.Update(bpf.PrefixFrom(p), bpf.Dest{Where: d.where, Source: bpf.AddrFrom(d.source)}, ebpf.UpdateAny)
		if errors.Is(err, unix.ENOSPC) {
			l.log.Warn("the routing table is larger than tl_dest; some source addresses will be shown wrong",
				"routes", len(want), "room", m.MaxEntries())
			break
		}
		if err != nil {
			return fmt.Errorf("entering the route to %s: %w", p, err)
		}
		l.dests[p] = d
	}
	for p := range l.dests {
		if _, ok := want[p]; ok {
			continue
		}
		if err := m.Delete(bpf.PrefixFrom(p)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("deleting the route to %s: %w", p, err)
		}
		delete(l.dests, p)
	}
	return nil
}

// followRoutes re-reads addresses and routes whenever netlink reports a change.
func (l *Loader) followRoutes(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.followOnce(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("following routes; trying again", "err", err)
		}
		sleep(ctx, followRetry)
	}
}

// followOnce subscribes and follows until ctx ends or a subscription breaks, for which an overrun is enough.
func (l *Loader) followOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	routes, addrs, links := make(chan netlink.RouteUpdate), make(chan netlink.AddrUpdate), make(chan netlink.LinkUpdate)
	if err := netlink.RouteSubscribe(routes, ctx.Done()); err != nil {
		return fmt.Errorf("subscribing to routes: %w", err)
	}
	changed := make(chan struct{}, 1)
	broken := make(chan struct{}, 3)
	go forward(routes, changed, broken)
	if err := netlink.AddrSubscribe(addrs, ctx.Done()); err != nil {
		return fmt.Errorf("subscribing to addresses: %w", err)
	}
	go forward(addrs, changed, broken)
	// IPv4 routes that vanish with their link are not announced.
	if err := netlink.LinkSubscribe(links, ctx.Done()); err != nil {
		return fmt.Errorf("subscribing to links: %w", err)
	}
	go forward(links, changed, broken)

	for {
		start := time.Now()
		n, err := readNetwork()
		if err != nil {
			return err
		}
		if err := l.syncDestinations(n); err != nil {
			return err
		}
		l.refreshMarks(n)
		pause := max(followPause, followBusy*time.Since(start))
		select {
		case <-ctx.Done():
			return nil
		case <-broken:
			return errors.New("a netlink subscription broke")
		case <-changed:
		case <-time.After(followAtAll):
		}
		sleep(ctx, pause)
		select { // whatever came in the meantime is read now
		case <-changed:
		default:
		}
	}
}

// forward turns updates into one pending signal. It ends when the subscription does.
func forward[T any](updates <-chan T, changed chan<- struct{}, broken chan<- struct{}) {
	for range updates {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	broken <- struct{}{}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
