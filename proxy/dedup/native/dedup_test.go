// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

func TestRoundTrip(t *testing.T) {
	datas := map[string][]byte{
		"random": random(1, 150_000),
		"text":   text(1, 150_000),
		"zero":   make([]byte, 150_000),
		"mixed":  append(append(append(text(2, 100_000), random(2, 100_000)...), make([]byte, 50_000)...), text(2, 100_000)...),
	}
	r := rand.New(rand.NewPCG(3, 3))
	cuts := map[string]func() int{"1": fixed(1), "7": fixed(7), "100": fixed(100), "1460": fixed(1460), "64K": fixed(64 << 10), "1M": fixed(codec.MaxBlock),
		"any": func() int { return 1 + r.IntN(1<<r.IntN(18)) }}
	for name, data := range datas {
		for cut, next := range cuts {
			t.Run(name+"/"+cut, func(t *testing.T) {
				data := data
				if cut == "1" || cut == "7" || cut == "100" {
					data = data[len(data)/2 : len(data)/2+len(data)/16] // a block costs more than its bytes
				}
				e := newEnds(4 << 20)
				for range 3 {
					l := e.leg(t)
					l.sendAll(t, data, next)
					l.sendAll(t, edit(4, data, 9), next)
					if l.asks > 0 {
						t.Errorf("%d asks", l.asks)
					}
					l.close()
				}
			})
		}
	}
}

func TestRepeatCostsNearlyNothing(t *testing.T) {
	data := file(t, 24<<20)
	e := newEnds(128 << 20)
	r := rand.New(rand.NewPCG(1, 1))
	cold := e.leg(t).sendAll(t, data, fixed(codec.MaxBlock))
	for _, c := range []struct {
		name string
		data []byte
		next func() int
		most int // bytes on the wire
	}{
		{"again", data, fixed(codec.MaxBlock), len(data) / 2000},
		{"in other cuts", data, func() int { return 1 + r.IntN(codec.MaxBlock) }, len(data) / 2000},
		{"in 64 KiB", data, fixed(64 << 10), len(data) / 2000},
		{"in 1460 bytes", data, fixed(1460), len(data) / 90},
		{"one byte in front", append([]byte{'x'}, data...), fixed(codec.MaxBlock), len(data) / 2000},
		{"edited", edit(7, data, 1000), fixed(codec.MaxBlock), len(data)/2000 + 1000*140},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := e.leg(t)
			got := l.sendAll(t, c.data, c.next)
			t.Logf("%d bytes: cold %d, now %d (1/%d), counters %+v", len(c.data), cold, got, len(c.data)/got, l.enc.Counters())
			if got > c.most {
				t.Errorf("%d bytes on the wire, want at most %d", got, c.most)
			}
			if l.asks > 0 {
				t.Errorf("%d asks", l.asks)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	e := newEnds(16 << 20)
	l := e.leg(t)
	n := 0
	for i := range 1000 {
		m := fmt.Appendf(nil, `{"ts":"2026-01-01T00:%02d:%02d.%03dZ","host":"web-%02d","path":"/api/%x","status":200,"bytes":%d}`,
			i/60%60, i%60, i*7%1000, i%16, i*2654435761%(1<<32), i*i)
		l.send(t, m)
		n += len(m)
	}
	t.Logf("messages of %d bytes take %d", n/1000, l.wire/1000)
	if l.wire > 60*1000 {
		t.Errorf("%d bytes for a message of %d", l.wire/1000, n/1000)
	}
}

func TestReason(t *testing.T) {
	tls := append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, random(1, 200_000)...)
	for _, c := range []struct {
		name string
		data []byte
		cut  int
		want reason.Code
	}{
		{"tls", tls, 16 << 10, reason.Encrypted},
		{"tls in bytes", tls[:100], 1, reason.Encrypted},
		{"ssh", append([]byte("SSH-2.0-OpenSSH_9.2\r\n"), random(1, 200_000)...), 1000, reason.Encrypted},
		{"random", random(2, 200_000), 16 << 10, reason.Incompressible},
		{"text", text(2, 200_000), 16 << 10, reason.None},
		{"short", random(2, 1000), 100, reason.None},
		{"almost tls", append([]byte{0x16, 3, 9}, random(3, 100)...), 100, reason.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newEnds(4 << 20).leg(t)
			l.sendAll(t, c.data, fixed(c.cut))
			if got := l.enc.Reason(); got != c.want {
				t.Errorf("reason %v, want %v", got, c.want)
			}
			if most := len(c.data) + (len(c.data)/c.cut+1)*16 + 64; l.wire > most {
				t.Errorf("%d bytes on the wire, want at most %d", l.wire, most)
			}
		})
	}
}

func TestIncompressibleRepeats(t *testing.T) {
	e, data := newEnds(16<<20), random(5, 3<<20)
	e.leg(t).sendAll(t, data, fixed(100_000))
	if n := e.leg(t).sendAll(t, data, fixed(codec.MaxBlock)); n > 1000 {
		t.Errorf("the repetition of random data takes %d bytes", n)
	}
}

func TestWithoutHistory(t *testing.T) {
	l := &leg{enc: NewEncoder(nil, Options{}), dec: NewDecoder(nil, "")}
	defer l.close()
	data := text(1, 500_000)
	if n := l.sendAll(t, data, fixed(10_000)); n > len(data)/2 {
		t.Errorf("%d bytes for %d of text", n, len(data))
	}
}

func TestRepeatAllocatesNothing(t *testing.T) {
	e, data := newEnds(64<<20), random(6, codec.MaxBlock)
	l := e.leg(t)
	for range 100 { // until the ring is wholly allocated
		l.send(t, data)
	}
	n := testing.AllocsPerRun(20, func() {
		l.buf = l.enc.Encode(l.buf[:0], data)
		if _, err := l.dec.Decode(l.buf); err != nil {
			t.Fatal(err)
		}
		l.enc.Ack(l.dec.Decoded())
	})
	if n > 0 {
		t.Errorf("%v allocations for a repeated block", n)
	}
	t.Logf("a repeated block takes %d bytes", len(l.buf))
}
