// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
)

// The leg may be closed only when END has been written. It was closed when END was about to be, so that now and then the
// peer saw a leg that ended without one, and reset a connection that had ended well.
func TestALegIsClosedAfterEndOnly(t *testing.T) {
	w := newWorld(t, nil)
	served := make(chan error, 1)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		c.CloseWrite()
		_, err := io.ReadAll(c)
		served <- err
	})
	c := w.steer(dst)
	var f *flow
	waitFor(t, "the server's END", 20*time.Second, func() bool {
		w.near.mu.Lock()
		defer w.near.mu.Unlock()
		for _, f = range w.near.flows {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.endReceived
		}
		return false
	})
	f.leg.writing.Lock() // END has to wait
	c.CloseWrite()
	waitFor(t, "END on its way", 20*time.Second, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.endSent
	})
	f.wake()
	time.Sleep(50 * time.Millisecond)
	f.leg.writing.Unlock()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("the client read %q, %v, want a clean end", b, err)
	}
	if err := <-served; err != nil {
		t.Errorf("the server saw %v, want a clean end", err)
	}
	for name, g := range map[string]*agent{"near": w.near, "far": w.far} {
		if n := g.ReasonCounts()[reason.LegFailed]; n != 0 {
			t.Errorf("%d flows of the %s agent counted as leg-failed", n, name)
		}
	}
}
