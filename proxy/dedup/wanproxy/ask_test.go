// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// TestLost: what the decoder's end has lost is asked for and learned, in the middle of a flow too, and is referred to again after that.
func TestLost(t *testing.T) {
	for _, spec := range specs() {
		t.Run(name(spec), func(t *testing.T) {
			e := newEnds(spec, 8<<20)
			data := append(random(1, 300_000), text(1, 300_000)...)
			first := e.carry(t, data, fixed(60_000))
			_, e.recv = NewStore(16 << 20).Peer()
			f := e.flow()
			f.sendAll(t, data, fixed(50_000))
			f.close()
			if f.asks == 0 {
				t.Error("nothing was asked for")
			}
			// What was learned counts as known, so that the loss costs no more than sending all of it anew.
			if f.wire > 2*first {
				t.Errorf("%d bytes on the wire when lost, %d the first time", f.wire, first)
			}
			if again := e.carry(t, data, varied(1)); spec.Stage == codec.StageNone && again*5 > len(data) {
				t.Errorf("%d bytes on the wire when learned again", again)
			}
			f = e.flow()
			f.sendAll(t, data[:200_000], fixed(30_000))
			f.dec.cache.close()
			f.dec.cache = nil // no room was left
			f.sendAll(t, data[200_000:], fixed(30_000))
			f.enc.Close()
			f.dec.Close()
		})
	}
}

// TestEvicted: caches of different sizes, at either end, hold different segments, and all comes out right.
func TestEvicted(t *testing.T) {
	for _, c := range []struct {
		name       string
		send, recv int64
	}{{"encoder's is smaller", 128 << 10, 4 << 20}, {"decoder's is smaller", 4 << 20, 128 << 10}, {"both are small", 200 << 10, 200 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			for _, spec := range specs() {
				e := &ends{spec: spec}
				e.send, _ = NewStore(2 * c.send).Peer()
				_, e.recv = NewStore(2 * c.recv).Peer()
				asks := 0
				for i := range 4 {
					f := e.flow()
					f.sendAll(t, append(random(uint64(i/2), 400_000), random(7, 20_000)...), varied(uint64(i)))
					asks += f.asks
					f.close()
				}
				if c.recv > c.send && asks > 0 {
					t.Errorf("%s: %d asks", name(spec), asks)
				}
				if n := e.send.HeldBytes(); n > c.send {
					t.Errorf("%s: the encoder's caches take %d bytes", name(spec), n)
				}
				if n := e.recv.HeldBytes(); n > c.recv {
					t.Errorf("%s: the decoder's caches take %d bytes", name(spec), n)
				}
			}
		})
	}
}

// TestWait: what comes behind a payload that waits for segments waits too, and then all of it comes, in bounded pieces.
func TestWait(t *testing.T) {
	spec := codec.Spec{Kind: codec.WANProxy2, Stage: codec.Zstd}
	e := newEnds(spec, 16<<20)
	data := random(1, 4<<20)
	e.carry(t, data, fixed(codec.MaxBlock))
	_, e.recv = NewStore(32 << 20).Peer()
	f := e.flow()
	var asks []codec.Ask
	var out []byte
	give := func(p []byte) {
		got, err := f.dec.Decode(p)
		if ask := (*codec.AskError)(nil); errors.As(err, &ask) {
			asks = append(asks, ask.Ask)
		} else if err != nil {
			t.Fatal(err)
		}
		if len(got) > moreBytes+codec.MaxBlock {
			t.Fatalf("%d bytes at once", len(got))
		}
		out = append(out, got...)
	}
	for left := data; len(left) > 0; left = left[64<<10:] {
		give(bytes.Clone(f.enc.Encode(nil, left[:64<<10])))
	}
	if len(asks) != 1 || len(out) > 0 {
		t.Fatalf("%d asks, %d bytes", len(asks), len(out))
	}
	for n := 0; n < len(asks); n++ {
		if err := f.enc.Resend(asks[n], func(p []byte) error { give(bytes.Clone(p)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out, data) {
		t.Fatalf("%d bytes came", len(out))
	}
	if len(asks) > 8 {
		t.Errorf("%d round trips", len(asks))
	}
	f.close()
}

// TestCorrupt: a payload of which a bit is another leads to the right bytes, an ask or an error.
func TestCorrupt(t *testing.T) {
	for _, spec := range specs() {
		t.Run(name(spec), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			data := append(append(text(1, 9000), rich(1, 9000)...), random(1, 9000)...)
			e := newEnds(spec, 8<<20)
			e.carry(t, data, fixed(5000))
			e.carry(t, edit(1, data, 3), fixed(5000))
			for range 80 {
				f := e.flow()
				victim := r.IntN(6)
				left := edit(r.Uint64(), data, 2)
				for i := 0; len(left) > 0; i++ {
					n := min(5000, len(left))
					p := f.enc.Encode(nil, left[:n])
					if i == victim {
						p[r.IntN(len(p))] ^= 1 << r.IntN(8)
					}
					f.out = f.out[:0]
					if err := f.receive(p); err != nil {
						break // the flow is reset
					}
					if !bytes.Equal(f.out, left[:n]) {
						t.Fatal("other bytes came out")
					}
					f.enc.Ack(f.dec.Decoded())
					left = left[n:]
				}
				f.enc.Close()
				f.dec.Close()
			}
		})
	}
}

// TestCollision: where the decoder's cache has other bytes for a hash, the block comes again.
func TestCollision(t *testing.T) {
	for _, spec := range specs() {
		e := newEnds(spec, 8<<20)
		data := random(1, 100_000)
		e.carry(t, data, fixed(10_000))
		c := e.recv.open("g", spec.Segment())
		for slot := uint32(1); slot <= 5; slot++ {
			c.segment(slot)[slot] ^= 1
		}
		c.close()
		f := e.flow()
		f.sendAll(t, data, fixed(10_000))
		if f.asks == 0 {
			t.Errorf("%s: nothing was asked for", name(spec))
		}
		f.close()
		if f = e.flow(); spec.Stage == codec.StageNone {
			f.sendAll(t, data, fixed(10_000))
		}
		f.close()
	}
}

// TestAskedTooOften: an encoder answers only so many asks about one block.
func TestAskedTooOften(t *testing.T) {
	e := newEnds(codec.Spec{Kind: codec.WANProxy}, 1<<20)
	f := e.flow()
	f.enc.Encode(nil, random(1, 5000))
	drop := func([]byte) error { return nil }
	if err := f.enc.Resend(codec.Ask{}, drop); err != nil {
		t.Fatal(err)
	}
	if err := f.enc.Resend(codec.Ask{}, drop); err == nil {
		t.Error("the same block was sent raw twice")
	}
	if err := f.enc.Resend(codec.Ask{Block: 1}, drop); err == nil {
		t.Error("a block that was never sent was sent again")
	}
	for _, detail := range []string{"x", "\xf1\x07", "\xf1\x07123456789", "\xf1\x0812345678"} {
		if err := f.enc.Resend(codec.Ask{Detail: []byte(detail)}, drop); err == nil {
			t.Errorf("an ask of %q was answered", detail)
		}
	}
	f.close()
}
