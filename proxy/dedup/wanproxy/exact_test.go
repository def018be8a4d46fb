// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// TestExact: anything, cut anyhow, comes out as it went in, on the first send, the second, and when it has been changed; and
// segments are asked for by nobody.
func TestExact(t *testing.T) {
	kinds := []struct {
		name string
		data []byte
	}{
		{"one byte", []byte{magic}},
		{"random", random(1, 150_000)},
		{"text", text(1, 150_000)},
		{"zeros", make([]byte, 100_000)},
		{"magic", bytes.Repeat([]byte{magic}, 50_000)},
		{"rich in magic", rich(1, 100_000)},
		{"repeats", bytes.Repeat(random(2, 7_777), 20)},
		{"period of a segment", bytes.Repeat(random(3, 2048), 40)},
		{"edited", append(text(4, 60_000), edit(4, text(4, 60_000), 12)...)},
	}
	cuts := []struct {
		name string
		next func() int
	}{
		{"whole", fixed(codec.MaxBlock)}, {"64K", fixed(64 << 10)}, {"odd", fixed(9_999)}, {"segments", fixed(2048)},
		{"1460", fixed(1460)}, {"small", fixed(97)}, {"varied", varied(1)},
	}
	for _, spec := range specs() {
		t.Run(name(spec), func(t *testing.T) {
			for _, k := range kinds {
				e := newEnds(spec, 4<<20)
				for i, c := range cuts {
					data := k.data
					if i%3 == 2 {
						data = edit(uint64(i), data, 1+len(data)/30_000)
					}
					f := e.flow()
					f.sendAll(t, data, c.next)
					if f.asks > 0 {
						t.Fatalf("%s, %s: %d asks", k.name, c.name, f.asks)
					}
					f.close()
				}
			}
		})
	}
}

// TestRest: rests in between cost no bytes.
func TestRest(t *testing.T) {
	for _, spec := range specs() {
		e := newEnds(spec, 4<<20)
		data := append(text(1, 50_000), random(1, 50_000)...)
		for range 3 {
			f := e.flow()
			next := varied(9)
			for left := data; len(left) > 0; {
				n := min(next(), len(left))
				f.send(t, left[:n])
				left = left[n:]
				if n%3 == 0 {
					f.enc.Rest()
				}
				if n%3 == 0 && n%2 == 0 {
					f.dec.Rest()
				}
				f.enc.SetEffort(codec.Effort(n % int(codec.Efforts)))
			}
			if f.asks > 0 {
				t.Errorf("%s: %d asks", name(spec), f.asks)
			}
			f.close()
		}
	}
}
