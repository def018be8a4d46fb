// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// A client that connects twice to one server, one connection after the other, knows in which order the server accepts
// them, and some rely on it (iperf3 gives its streams their roles by it). Steered connections are accepted at once, and
// their OPENs travel on legs of their own, so the order must be told: each OPEN names the flow before it to the same
// destination whose answer is still out, and the far agent dials that one first. It waits a moment only, since one
// flow's lost packet must not hold up another for long.

// dialOrderWait is how long a dial waits for the one before it: OPENs of one instant arrive within milliseconds of each
// other unless one of them is lost.
const dialOrderWait = 250 * time.Millisecond

// arrivals numbers steered connections in the order of their arrival. Safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	last map[netip.AddrPort]uint64 // by destination: the latest flow whose answer is out
}

// next registers a flow and returns the one before it to the destination; 0 is none whose answer is out.
func (a *arrivals) next(destination netip.AddrPort, id uint64) (after uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[netip.AddrPort]uint64{}
	}
	after = a.last[destination]
	a.last[destination] = id
	return after
}

// settled says that a flow has its answer, or will have none.
func (a *arrivals) settled(destination netip.AddrPort, id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last[destination] == id {
		delete(a.last, destination)
	}
}

// dials knows which of a peer's flows have been dialled lately. Safe for concurrent use.
type dials struct {
	mu    sync.Mutex
	flows map[uint64]*dialled
}

type dialled struct {
	over    chan struct{}
	once    sync.Once
	arrived bool // the flow itself came; guarded by dials.mu
	waiting int  // guarded by dials.mu
}

// entry returns the state of a flow, which may not have come yet; d.mu is held.
func (d *dials) entry(id uint64) *dialled {
	if d.flows == nil {
		d.flows = map[uint64]*dialled{}
	}
	e := d.flows[id]
	if e == nil {
		e = &dialled{over: make(chan struct{})}
		d.flows[id] = e
	}
	return e
}

// await waits until a flow has been dialled, but not for long; 0 is no flow.
func (d *dials) await(ctx context.Context, id uint64) {
	if id == 0 {
		return
	}
	d.mu.Lock()
	e := d.entry(id)
	e.waiting++
	d.mu.Unlock()
	limit := time.NewTimer(dialOrderWait)
	defer limit.Stop()
	select {
	case <-e.over:
	case <-limit.C:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.waiting--; e.waiting == 0 && !e.arrived {
		delete(d.flows, id)
	}
}

// done says that a flow has been dialled, whatever came of it. It is remembered for as long as others may ask.
func (d *dials) done(id uint64) {
	d.mu.Lock()
	e := d.entry(id)
	e.arrived = true
	d.mu.Unlock()
	e.once.Do(func() { close(e.over) })
	time.AfterFunc(4*dialOrderWait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.flows[id] == e {
			delete(d.flows, id)
		}
	})
}
