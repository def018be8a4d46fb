// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func messages(n int) (all [][]byte) {
	for i := range n {
		all = append(all, fmt.Appendf(nil, `{"ts":"2026-01-01T00:%02d:%02d.%03dZ","host":"web-%02d","path":"/api/%x","status":200,"bytes":%d}`,
			i/60%60, i%60, i*7%1000, i%16, i*2654435761%(1<<32), i*i))
	}
	return all
}

func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	cases := messages(300)
	for i := range 300 {
		cases = append(cases, random(uint64(i), r.IntN(300)), make([]byte, r.IntN(300)), bytes.Repeat([]byte{255}, r.IntN(300)), text(uint64(i), r.IntN(300)))
	}
	for _, prime := range [][]byte{nil, text(3, 2000)} {
		enc, dec := newModel(prime), newModel(prime)
		for i, want := range cases {
			part := enc.encode(nil, want)
			got := make([]byte, len(want))
			if dec.decode(got, part); !bytes.Equal(got, want) {
				t.Fatalf("case %d: %d bytes come out as others", i, len(want))
			}
			if len(part) > len(want)+len(want)/8+8 {
				t.Errorf("case %d: %d bytes become %d", i, len(want), len(part))
			}
		}
		models.Put(enc)
		models.Put(dec)
	}
}

// Messages that the model makes nothing of are sent as they are, most of them; a flow whose messages change is found out.
func TestMessagesOfNoise(t *testing.T) {
	l := newEnds(1 << 20).leg(t)
	raw := func(next func(i int) []byte) (n int) {
		for i := range 200 {
			l.send(t, next(i))
			if formOf(l.buf[0]) == formRaw {
				n++
			}
		}
		return n
	}
	if n := raw(func(i int) []byte { return random(uint64(i), 100) }); n < 150 {
		t.Errorf("of 200 messages of noise %d went without the model", n)
	}
	all := messages(200)
	if n := raw(func(i int) []byte { return all[i] }); n > 60 {
		t.Errorf("of 200 messages of text that followed %d went without the model", n)
	}
}

func TestStretch(t *testing.T) {
	for p := int32(8); p < 4088; p++ {
		if q := squash(int32(stretches[p])); q < p-4 || q > p+8 {
			t.Errorf("squash(stretch(%d)) = %d", p, q)
		}
	}
	for s := range 1 << 16 {
		for bit := range int32(2) {
			s := uint16(s)
			if a, b := probability(s), probability(correct(s, bit)); bit == 1 && b < a || bit == 0 && b > a {
				t.Fatalf("counter %#x goes from %d to %d for a %d", s, a, b, bit)
			}
		}
	}
}

func BenchmarkModel(b *testing.B) {
	all := messages(1000)
	m := newModel(nil)
	var dst []byte
	b.ReportAllocs()
	n := 0
	for i := 0; b.Loop(); i++ {
		dst = m.encode(dst[:0], all[i%len(all)])
		n += len(all[i%len(all)])
	}
	b.SetBytes(int64(n / b.N))
}
