// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
)

// A peer that is taken out of the configuration, or has another key there, has lost its access, also over what it had
// connected before; and it finds out, so that its connections go direct.
func TestARemovedPeerLosesItsAccess(t *testing.T) {
	for name, left := range map[string]func(Peer) []Peer{
		"removed": func(Peer) []Peer { return nil },
		"re-keyed": func(p Peer) []Peer {
			p.Key = newTestIdentity(t).Fingerprint()
			return []Peer{p}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			dst := serve(t, serverAddr, echo)
			live := w.steer(dst)
			live.Write([]byte("a"))
			if _, err := io.ReadFull(live, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			peers := w.far.cfg.Peers
			if err := w.far.Reconfigure(left(peers[0]), w.far.cfg.Rules, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(live); err == nil {
				t.Errorf("the removed peer's flow ended cleanly after %q", got)
			}
			waitFor(t, "the removed peer to notice", 20*time.Second, func() bool { return !w.near.kernel.isUp(1) })
			if w.near.Peers()[0].LegsWarm != 0 {
				t.Error("legs to the agent that removed us are still kept")
			}
			if err := w.far.Reconfigure(peers, w.far.cfg.Rules, nil); err != nil {
				t.Fatal(err)
			}
			w.waitUp()
			if b, err := io.ReadAll(echoOnce(w)); err != nil || string(b) != "hello" {
				t.Errorf("after it was restored: %q, %v", b, err)
			}
		})
	}
}

// What was refused counts once, under the refusal's own reason, whether it then went direct or was reset.
func TestARefusalCountsUnderItsReason(t *testing.T) {
	w := newWorld(t, nil)
	const each = 8
	for range each {
		dst := serve(t, otherAddr, func(c *net.TCPConn) { c.Write([]byte("hello")); echo(c) })
		if _, err := io.ReadFull(w.steer(dst), make([]byte, 5)); err != nil { // nothing sent yet: it goes direct
			t.Fatal(err)
		}
		c := w.steer(serve(t, otherAddr, echo))
		c.Write([]byte("x"))
		c.CloseWrite() // or it would wait for more, where the refusal was faster than the byte
		io.ReadAll(c)
	}
	waitFor(t, "the refusals to be counted", 20*time.Second, func() bool {
		return w.near.ReasonCounts()[reason.NotAllowed] == 2*each
	})
	for code, n := range w.near.ReasonCounts() {
		if code != reason.NotAllowed {
			t.Errorf("%d flows counted as %v", n, code)
		}
	}
}
