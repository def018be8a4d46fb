// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// benchBytes are sent in each round of a benchmark.
const benchBytes = 8 << 20

// benchEncode measures what an encoder does with data that its cache has not seen, or has.
func benchEncode(b *testing.B, kind codec.Kind, data []byte, fresh bool) {
	spec := codec.Spec{Kind: kind, Stage: codec.StageNone}
	// The cache is full from the start: memory from the system is not what is measured.
	e := newEnds(spec, 3*benchBytes)
	e.carry(b, random(99, 4*benchBytes), fixed(codec.MaxBlock))
	e.carry(b, data, fixed(codec.MaxBlock))
	f := e.flow()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	number, salt := uint64(0), byte(0)
	for b.Loop() {
		if fresh {
			// Bytes that differ in every segment are new ones.
			salt++
			for i := 0; i < len(data); i += 512 {
				data[i] += salt
			}
		}
		for left := data; len(left) > 0; left = left[64<<10:] {
			f.buf = f.enc.Encode(f.buf[:0], left[:64<<10])
			number++
			f.enc.Ack(number)
		}
	}
	b.StopTimer()
	f.close()
}

func BenchmarkEncodeFirst(b *testing.B) {
	b.Run("wanproxy", func(b *testing.B) { benchEncode(b, codec.WANProxy, text(1, benchBytes), true) })
	b.Run("wanproxy2", func(b *testing.B) { benchEncode(b, codec.WANProxy2, text(1, benchBytes), true) })
}

func BenchmarkEncodeRepeat(b *testing.B) {
	b.Run("wanproxy", func(b *testing.B) { benchEncode(b, codec.WANProxy, text(1, benchBytes), false) })
	b.Run("wanproxy2", func(b *testing.B) { benchEncode(b, codec.WANProxy2, text(1, benchBytes), false) })
}

func benchDecode(b *testing.B, fresh bool) {
	e := newEnds(codec.Spec{Kind: codec.WANProxy, Stage: codec.StageNone}, 3*benchBytes)
	data := text(1, benchBytes)
	if !fresh {
		e.carry(b, data, fixed(codec.MaxBlock))
	}
	f := e.flow()
	var payloads [][]byte
	for left := data; len(left) > 0; left = left[64<<10:] {
		payloads = append(payloads, f.enc.Encode(nil, left[:64<<10]))
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		dec := NewDecoder(e.recv, "g", e.spec)
		for _, p := range payloads {
			if _, err := dec.Decode(p); err != nil {
				b.Fatal(err)
			}
		}
		dec.Close()
	}
}

func BenchmarkDecodeFirst(b *testing.B)  { benchDecode(b, true) }
func BenchmarkDecodeRepeat(b *testing.B) { benchDecode(b, false) }
