// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/wanproxy"
)

// loseSegments makes an agent forget the segments it shares with its peer, without the peer knowing.
func loseSegments(a *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.peers[0]
	p.memory = dedup.NewMemory(a.store, wanproxy.NewStore(64<<20), p.key)
}

// TestSegments: flows of a rule with a WANProxy codec arrive as they were sent, in both directions; what was sent before is
// referred to; and what one end has lost is asked for and learned again.
func TestSegments(t *testing.T) {
	for _, spec := range []codec.Spec{
		{Kind: codec.WANProxy, Stage: codec.Zstd}, {Kind: codec.WANProxy2, Stage: codec.Zlib}, {Kind: codec.WANProxy2, Stage: codec.StageNone, SegmentBytes: 256},
	} {
		t.Run(spec.String(), func(t *testing.T) {
			w := newWorld(t, func(near, far *Config) {
				patient(near, far) // a peer that connects anew tells what it has lost
				near.WarmLegs, near.Rules[0].Codec = -1, spec
			})
			data := mixed(3<<20, 8)
			dst := serve(t, serverAddr, func(c *net.TCPConn) {
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("server got %d bytes, %v", len(got), err)
				}
				c.Write(got)
			})
			carry := func(seed uint64) int64 {
				s := w.near.Peers()[0]
				c := w.steer(dst)
				go writeRandomly(c, data, seed)
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("client got %d bytes, %v", len(got), err)
				}
				now := w.near.Peers()[0]
				return now.WireSent - s.WireSent + now.WireReceived - s.WireReceived
			}
			asked := func() int {
				return bytes.Count([]byte(w.near.logs.String()+w.far.logs.String()), []byte("asking the peer for a block"))
			}
			first := carry(1)
			if again := carry(2); again*2 > first {
				t.Errorf("%d bytes went over the leg the first time, %d the second", first, again)
			}
			if n := asked(); n > 0 {
				t.Errorf("%d asks with nothing lost", n)
			}
			for i, loser := range []*agent{w.far, w.near} {
				before := asked()
				loseSegments(loser)
				carry(uint64(3 + i))
				if asked() == before {
					t.Errorf("%s lost its segments, and nothing was asked", loser.cfg.Instance)
				}
			}
			if again := carry(5); again*2 > first {
				t.Errorf("%d bytes went over the leg when all was learned again", again)
			}
		})
	}
}
