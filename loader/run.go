// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"sync"
	"time"
)

const sweepEvery = time.Second

// Run keeps the kernel side true until ctx ends: the heartbeat as long as alive says so, addresses and routes as netlink
// reports them, and what was left behind swept away.
func (l *Loader) Run(ctx context.Context, alive func() bool) error {
	var wg sync.WaitGroup
	for _, f := range []func(){
		func() { l.beat(ctx, alive) },
		func() { l.followRoutes(ctx) },
		func() { l.sweepUntil(ctx) },
	} {
		wg.Go(f)
	}
	wg.Wait()
	return nil
}

func (l *Loader) sweepUntil(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			l.sweep()
			l.keepPeerAddrs()
			l.refreshRules()
			l.sweepReserved()
		}
	}
}
