// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

func data(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+32)
	for len(b) < n {
		if r.IntN(3) == 0 {
			b = append(b, byte(r.Uint32()), byte(r.Uint32()))
			continue
		}
		b = fmt.Appendf(b, "line %d of text\n", r.IntN(100))
	}
	return b[:n]
}

// TestStream: parts of all sizes come out as they went in, over changes of effort and rests of the sender.
func TestStream(t *testing.T) {
	for _, kind := range []codec.Stage{codec.Zstd, codec.Zlib} {
		t.Run(kind.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(kind), 1))
			p, u := NewPacker(kind), NewUnpacker(kind)
			raw, packed := 0, 0
			for i := range 200 {
				n := 1 + r.IntN(1<<(1+i%17))
				in := data(r, n)
				part, fresh := p.Pack(nil, in, codec.EffortFastest+codec.Effort(i/50)%3)
				out := make([]byte, n)
				if err := u.Unpack(out, part, fresh); err != nil {
					t.Fatalf("part %d: %v", i, err)
				}
				if !bytes.Equal(in, out) {
					t.Fatalf("part %d: other bytes", i)
				}
				raw, packed = raw+n, packed+len(part)
				switch i % 50 {
				case 20:
					p.Rest()
				case 40:
					p.Restart()
				}
			}
			if packed*2 > raw {
				t.Errorf("%d bytes became %d", raw, packed)
			}
			p.Rest()
			u.Rest()
		})
	}
}

// TestRested: what follows a rest of the receiver alone is told, not made up.
func TestRested(t *testing.T) {
	for _, kind := range []codec.Stage{codec.Zstd, codec.Zlib} {
		p, u := NewPacker(kind), NewUnpacker(kind)
		part, fresh := p.Pack(nil, []byte("first"), codec.EffortDefault)
		if err := u.Unpack(make([]byte, 5), part, fresh); err != nil {
			t.Fatal(err)
		}
		u.Rest()
		part, fresh = p.Pack(nil, []byte("second"), codec.EffortDefault)
		if err := u.Unpack(make([]byte, 6), part, fresh); !errors.Is(err, ErrNotBegun) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// FuzzUnpack feeds parts of any kind: an error or the wanted number of bytes, and no panic.
func FuzzUnpack(f *testing.F) {
	for _, kind := range []codec.Stage{codec.Zstd, codec.Zlib} {
		p := NewPacker(kind)
		for _, s := range []string{"a first part of the stream, of the stream", "a second"} {
			part, _ := p.Pack(nil, []byte(s), codec.EffortDefault)
			f.Add(byte(kind), part, part, uint16(len(s)))
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, a, b []byte, n uint16) {
		u := NewUnpacker(codec.Stage(kind % 2))
		defer u.Rest()
		out := make([]byte, n)
		for i, part := range [][]byte{a, b, a} {
			if u.Unpack(out, part, i == 0) != nil && u.live {
				t.Fatal("alive after an error")
			}
		}
	})
}
