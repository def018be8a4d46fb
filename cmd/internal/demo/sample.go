// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
)

// got is what the flow of a fetch was given.
type got struct {
	congestion string // at site B, which sends the file
	window     uint32 // at site A, which receives it; bytes, 0 is auto
}

// sample asks both agents again and again what the fetch's flow has, until the context ends. A warm fetch takes tenths of
// a second, so the first second is watched closely.
func (w *world) sample(ctx context.Context, port uint16) got {
	var g got
	a, b := w.a.agent.Control(), w.b.agent.Control()
	start := time.Now()
	for {
		// An answer that does not come is the business of whoever watches the fetch itself.
		if flows, err := b.Flows(ctx); err == nil {
			if f, ok := wanFlow(flows, port); ok && f.Congestion != "" {
				g.congestion = f.Congestion
			}
		}
		if flows, err := a.Flows(ctx); err == nil {
			if f, ok := wanFlow(flows, port); ok {
				g.window = max(g.window, f.WindowBytes)
			}
		}
		pause := 10 * time.Millisecond
		if time.Since(start) > time.Second {
			pause = 500 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return g
		case <-time.After(pause):
		}
	}
}

// wanFlow finds the connection that carries the fetch over the WAN: the application's own if it goes direct, else the leg
// in use.
func wanFlow(flows []control.Flow, port uint16) (control.Flow, bool) {
	for _, f := range flows {
		switch {
		case port == dedupPort:
			if f.Kind == "leg" && f.RuleID != 0 {
				return f, true
			}
		case f.Kind == "plain" && (f.Passive && f.Local.Port() == port || !f.Passive && f.Remote.Port() == port):
			return f, true
		}
	}
	return control.Flow{}, false
}
