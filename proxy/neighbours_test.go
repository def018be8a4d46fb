// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// One application that takes nothing, among twenty that share a peer and a history: the others' bytes arrive, new ones as
// repeats, while it does not move. What it takes at last is exact too.
func TestAStalledReceiverHoldsUpNobody(t *testing.T) {
	const others = 19
	w := newWorld(t, nil)
	size := int(testkit.Size(2<<20, 256<<10))
	shared := mixed(size, 50)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		var which [1]byte
		if _, err := io.ReadFull(c, which[:]); err != nil {
			return
		}
		if which[0] == others { // more than the window and all buffers hold
			for range 48 << 20 / size {
				if _, err := c.Write(shared); err != nil {
					return
				}
			}
			return
		}
		c.Write(mixed(size, uint64(which[0])))
		c.Write(shared)
	})
	stalled := w.steer(dst)
	stalled.Write([]byte{others})
	waitFor(t, "the stalled flow to fill its window", 60*time.Second, func() bool {
		flows := w.near.Flows()
		return len(flows) == 1 && flows[0].RawReceived >= windowMax
	})
	before := w.near.Flows()[0].RawReceived
	var wg sync.WaitGroup
	failed := make(chan error, others)
	for i := range others {
		c := w.steer(dst)
		c.Write([]byte{byte(i)})
		wg.Go(func() {
			got, err := io.ReadAll(c)
			if want := append(mixed(size, uint64(i)), shared...); err != nil || !bytes.Equal(got, want) {
				failed <- fmt.Errorf("flow %d: %d of %d bytes, %w", i, len(got), len(want), err)
			}
		})
	}
	wg.Wait() // a flow that is held up for ever ends with the test's time
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	if now := w.near.Flows()[0].RawReceived; now > before+windowMax {
		t.Errorf("the stalled flow moved on from %d to %d bytes", before, now)
	}
	got := make([]byte, size)
	for i := range 48 << 20 / size {
		if _, err := io.ReadFull(stalled, got); err != nil || !bytes.Equal(got, shared) {
			t.Fatalf("block %d of the stalled flow: %v", i, err)
		}
	}
}
