// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/netns"
)

// The heartbeat tells the connect hook that the engine is not merely listening but awake.
const (
	heartbeatEvery  = 250 * time.Millisecond
	heartbeatMaxAge = 3 * time.Second
)

// initAgent writes the agent's entry for the first time: not steering, no engine.
func (l *Loader) initAgent() error {
	cookie, err := netns.Cookie()
	if err != nil {
		return err
	}
	return l.writeAgent(func(a *bpf.Agent) {
		a.HeartbeatMaxAgeNs = uint64(heartbeatMaxAge)
		a.NetnsCookie = cookie
		a.Dscp = l.o.DSCP
		a.SlowStartNs = 2
		a.MarkBit = l.o.MarkBit
	})
}

// writeAgent changes the agent's entry as a whole.
func (l *Loader) writeAgent(change func(*bpf.Agent)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.agent
	change(&a)
	if err := l.maps["tl_agent"].Update(uint32(0), a, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("writing the agent's entry: %w", err)
	}
	l.agent = a
	return nil
}

// SetEngine says where the engine listens. From now on connections are steered, while Run says that the engine is alive.
func (l *Loader) SetEngine(e Engine) error {
	return l.writeAgent(func(a *bpf.Agent) {
		a.EnginePort4, a.EnginePort6, a.PeerPort = e.Port4, e.Port6, e.PeerPort
		a.Steering = 1
		a.HeartbeatNs = monotonic()
	})
}

// Drain has new connections go direct from now on; those that were steered are not touched.
func (l *Loader) Drain() error {
	return l.writeAgent(func(a *bpf.Agent) { a.Steering = 0 })
}

// beat writes a heartbeat as long as alive says so. Missing beats cost nothing but detours, so errors are logged only.
func (l *Loader) beat(ctx context.Context, alive func() bool) {
	t := time.NewTicker(heartbeatEvery)
	defer t.Stop()
	for {
		if alive() {
			if err := l.writeAgent(func(a *bpf.Agent) { a.HeartbeatNs = monotonic() }); err != nil {
				l.log.Error("heartbeat", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// monotonic returns CLOCK_MONOTONIC in ns, the clock of bpf_ktime_get_ns.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
