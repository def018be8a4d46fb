// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"sync"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// TestConcurrent: many flows share the caches of a group, which are too small for all they send.
func TestConcurrent(t *testing.T) {
	pool := append(append(text(1, 150_000), random(1, 150_000)...), rich(1, 50_000)...)
	for _, spec := range []codec.Spec{{Kind: codec.WANProxy, Stage: codec.Zstd}, {Kind: codec.WANProxy2, Stage: codec.StageNone, SegmentBytes: 256}} {
		for _, bound := range []int64{150 << 10, 4 << 20} {
			e := newEnds(spec, bound)
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					for n := range 3 {
						f := e.flow()
						next := varied(uint64(i*10 + n))
						for left := edit(uint64(i), pool[i*1000:], 1+n); len(left) > 0; {
							k := min(next(), len(left))
							f.buf, f.out = f.enc.Encode(f.buf[:0], left[:k]), f.out[:0]
							if err := f.receive(f.buf); err != nil {
								t.Errorf("flow %d: %v", i, err)
								return
							}
							if !bytes.Equal(f.out, left[:k]) {
								t.Errorf("flow %d: other bytes came out", i)
								return
							}
							if k%3 > 0 {
								f.enc.Ack(f.dec.Decoded())
							}
							if k%16 == 0 {
								f.enc.Rest()
								f.dec.Rest()
							}
							left = left[k:]
						}
						f.close()
					}
				})
			}
			wg.Wait()
			if n := e.send.HeldBytes(); n > bound {
				t.Errorf("the encoder's caches take %d bytes", n)
			}
		}
	}
}

// TestCaches: caches that are in use are kept, and the others make room for them.
func TestCaches(t *testing.T) {
	s := NewStore(4 << 20)
	sent, _ := s.Peer()
	spec := codec.Spec{Kind: codec.WANProxy, Stage: codec.StageNone}
	_, received := NewStore(8 << 20).Peer()
	for i := range maxCaches + 8 {
		group := string(rune('a' + i))
		f := &flow{enc: NewEncoder(sent, group, spec), dec: NewDecoder(received, group, spec)}
		f.sendAll(t, random(uint64(i), 400_000), fixed(100_000))
		f.close()
		if n := sent.HeldBytes(); n > 2<<20 {
			t.Fatalf("after %d groups %d bytes are held", i+1, n)
		}
	}
	if n := received.HeldBytes(); n > 4<<20 || n < 2<<20 {
		t.Errorf("%d bytes are held of what was received", n)
	}
}
