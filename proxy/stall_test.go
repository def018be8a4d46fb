// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// TestAStalledLegDoesNotHoldUpTheEnd: a peer that takes nothing more leaves a writer waiting on the leg. The end of the flow
// must not wait as long as the kernel would.
func TestAStalledLegDoesNotHoldUpTheEnd(t *testing.T) {
	w, m := newMiddleWorld(t, nil)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		go io.Copy(io.Discard, c)
		for b := []byte("tick"); ; time.Sleep(10 * time.Millisecond) { // each is acknowledged, which waits behind the writer
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	c := w.steer(dst)
	c.Write([]byte("x"))
	go io.Copy(io.Discard, c)
	waitFor(t, "the flow to be open", 20*time.Second, func() bool { return w.near.Peers()[0].FlowsOpened == 1 })
	m.stall.Store(true)
	go c.Write(mixed(12<<20, 5))
	time.Sleep(testkit.Wait(500 * time.Millisecond))
	begun := time.Now()
	w.near.close()
	m.stall.Store(false)
	m.cut(true)
	if took := time.Since(begun); took > testkit.Wait(20*time.Second) {
		t.Errorf("the engine took %v to end", took)
	}
}
