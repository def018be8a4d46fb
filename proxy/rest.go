// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"maps"
	"slices"
	"time"
)

// restTurns is how many times within Timeouts.Rest the flows are looked at.
const restTurns = 4

// restFlows has the codecs of idle flows give back what they can build again, until ctx ends.
func (e *Engine) restFlows(ctx context.Context) {
	ticks := time.NewTicker(max(e.cfg.Timeouts.Rest/restTurns, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		e.mu.Lock()
		flows := slices.Collect(maps.Values(e.flows))
		e.mu.Unlock()
		before := time.Now().Add(-e.cfg.Timeouts.Rest).UnixNano()
		for _, f := range flows {
			f.rest(before)
		}
	}
}

// rest lets the codec of the flow rest, if no block went either way since a time in Unix nanoseconds, and it does not rest
// already. A block that comes meanwhile only has the codec build anew what it gave back.
func (f *flow) rest(before int64) {
	active := f.active.Load()
	if active > before || f.rested.Load() == active {
		return
	}
	f.codecs.Lock()
	defer f.codecs.Unlock()
	if f.dropped {
		return
	}
	f.rested.Store(active)
	f.enc.Rest()
	f.dec.Rest()
}
