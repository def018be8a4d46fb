// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// A server resets a connection whose client is sending: the reset wakes the one that writes to the server and the one that
// reads from it, and the kernel tells only one of them. It must not look like the end of the answer.
func TestAResetIsNoEndWhileWriting(t *testing.T) {
	for name, c := range map[string]struct {
		world func() *world
		bytes int // what the client sends: enough to fill the way to a server that does not read
	}{
		"flow":  {func() *world { return newWorld(t, nil) }, 8 << 20},
		"relay": {func() *world { return newLoneWorld(t) }, 3400 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			w, answer := c.world(), bytes.Repeat([]byte("a"), 30_000)
			for range 15 {
				written := make(chan struct{})
				conn := w.steer(serve(t, serverAddr, func(s *net.TCPConn) {
					s.SetReadBuffer(8192)
					io.ReadFull(s, make([]byte, 1))
					s.Write(answer)
					select {
					case <-written: // the client only reads now
					case <-time.After(testkit.Wait(20 * time.Second)):
					}
					time.Sleep(20 * time.Millisecond)
					abort(s)
				}))
				go func() { conn.Write(make([]byte, c.bytes)); close(written) }()
				if got, err := io.ReadAll(conn); err == nil {
					t.Fatalf("a reset after %d bytes was seen as a clean end", len(got))
				}
				conn.Close()
			}
		})
	}
}
