// SPDX-License-Identifier: Apache-2.0

package native

import (
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

const benchBytes = 12 << 20

// blocks are the payloads of a file sent in blocks of n bytes.
func (l *leg) blocks(t testing.TB, data []byte, n int) (out [][]byte) {
	for len(data) > 0 {
		k := min(n, len(data))
		p := l.enc.Encode(nil, data[:k])
		l.receive(t, p, data[:k])
		l.enc.Ack(l.dec.Decoded())
		out = append(out, p)
		data = data[k:]
	}
	return out
}

func bench(b *testing.B, block int, cold bool) {
	data := file(b, benchBytes)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	e := newEnds(64 << 20)
	if !cold {
		e.leg(b).sendAll(b, data, fixed(block))
	}
	wire := 0
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		if cold {
			e = newEnds(64 << 20)
			// Memory from the system is not what is measured.
			e.leg(b).sendAll(b, random(1, len(data)), fixed(codec.MaxBlock))
		}
		l := e.leg(b)
		b.StartTimer()
		for left := data; len(left) > 0; {
			k := min(block, len(left))
			l.buf = l.enc.Encode(l.buf[:0], left[:k])
			wire += len(l.buf)
			left = left[k:]
			l.enc.Ack(l.enc.next())
		}
		b.StopTimer()
		l.close()
		b.StartTimer()
	}
	b.ReportMetric(float64(len(data))*float64(b.N)/float64(wire), "ratio")
}

func BenchmarkEncodeCold(b *testing.B) {
	b.Run("64K", func(b *testing.B) { bench(b, 64<<10, true) })
	b.Run("1M", func(b *testing.B) { bench(b, codec.MaxBlock, true) })
}

func BenchmarkEncodeRepeat(b *testing.B) {
	b.Run("64K", func(b *testing.B) { bench(b, 64<<10, false) })
	b.Run("1M", func(b *testing.B) { bench(b, codec.MaxBlock, false) })
}

func benchDecode(b *testing.B, block int, cold bool) {
	data := file(b, benchBytes)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	e := newEnds(64 << 20)
	if !cold {
		e.leg(b).sendAll(b, data, fixed(block))
	}
	l := e.leg(b)
	payloads := l.blocks(b, data, block)
	l.close()
	b.ResetTimer()
	for range b.N {
		dec := NewDecoder(e.receivers, "g")
		for _, p := range payloads {
			if _, err := dec.Decode(p); err != nil {
				b.Fatal(err)
			}
		}
		dec.Close()
	}
}

func BenchmarkDecodeCold(b *testing.B) {
	b.Run("64K", func(b *testing.B) { benchDecode(b, 64<<10, true) })
	b.Run("1M", func(b *testing.B) { benchDecode(b, codec.MaxBlock, true) })
}

func BenchmarkDecodeRepeat(b *testing.B) {
	b.Run("64K", func(b *testing.B) { benchDecode(b, 64<<10, false) })
	b.Run("1M", func(b *testing.B) { benchDecode(b, codec.MaxBlock, false) })
}
