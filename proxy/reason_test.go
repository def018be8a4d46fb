// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
)

// TestADownloadThatGainsNothingHasAReason: at both ends, though only the far one has encoded it; one that compresses has none.
func TestADownloadThatGainsNothingHasAReason(t *testing.T) {
	w := newWorld(t, nil)
	noise := make([]byte, 200<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]reason.Code{
		string(noise): reason.Incompressible,
		string(bytes.Repeat([]byte("the same again\n"), 20<<10)): reason.None,
	} {
		dst := serve(t, serverAddr, func(c *net.TCPConn) { c.Write([]byte(data)); io.Copy(io.Discard, c) })
		c := w.steer(dst)
		if _, err := io.ReadFull(c, make([]byte, len(data))); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*agent{w.near, w.far} {
			if f := a.Flows(); len(f) != 1 || f[0].Reason != want {
				t.Errorf("%s: %+v, want %v", a.cfg.Instance, f, want)
			}
		}
		c.Close()
		waitFor(t, "the flow to end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
	}
	if n := w.near.ReasonCounts()[reason.Incompressible]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}
