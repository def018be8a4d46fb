// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// FuzzDecode feeds payloads of any kind to a decoder that holds some segments.
func FuzzDecode(f *testing.F) {
	stages := []codec.Stage{codec.StageNone, codec.Zstd, codec.Zlib}
	spec := func(n byte) codec.Spec {
		return codec.Spec{Kind: codec.WANProxy + codec.Kind(n%2), Stage: stages[n/2%3], SegmentBytes: 128}
	}
	for n := range byte(6) {
		e := newEnds(spec(n), 1<<20)
		enc := NewEncoder(e.send, "g", e.spec)
		var payloads [][]byte
		for _, b := range script() {
			payloads = append(payloads, enc.Encode(nil, b))
		}
		for i, p := range payloads[1:] {
			f.Add(n, payloads[i], p, payloads[0])
		}
		last := uint64(len(payloads) - 1)
		detail := appendHash([]byte{magic, opAsk}, sum(random(1, 256)[123:251]))
		for _, ask := range []codec.Ask{{Block: last, Detail: detail}, {Block: 3}} {
			_ = enc.Resend(ask, func(p []byte) error { f.Add(n, payloads[0], bytes.Clone(p), payloads[1]); return nil })
		}
		enc.Close()
	}
	f.Fuzz(func(t *testing.T, n byte, a, b, c []byte) {
		e := newEnds(spec(n), 64<<10)
		warm := e.flow()
		warm.sendAll(t, bytes.Join(script(), nil)[:3000], fixed(1000))
		dec := warm.dec
		for _, p := range [][]byte{a, b, c, a, {answerMore}} {
			before := dec.Decoded()
			data, err := dec.Decode(p)
			ask := (*codec.AskError)(nil)
			if errors.As(err, &ask) {
				if len(ask.Detail) > codec.MaxDetail || ask.Block != dec.Decoded() {
					t.Fatalf("ask for block %d with %d bytes", ask.Block, len(ask.Detail))
				}
			} else if err != nil {
				break
			}
			if len(data) > 2*codec.MaxBlock || len(data) > 0 != (dec.Decoded() > before) {
				t.Fatalf("%d bytes, %d blocks", len(data), dec.Decoded()-before)
			}
		}
		if n := e.recv.HeldBytes(); n > 64<<10 {
			t.Fatalf("%d bytes are held", n)
		}
		warm.enc.Close()
		dec.Close()
	})
}

// FuzzRoundTrip lets a script of three-byte steps drive three flows whose payloads, acknowledgements and asks take their time.
func FuzzRoundTrip(f *testing.F) {
	f.Add(byte(0), []byte{0, 99, 1, 0, 99, 1, 2, 0, 0, 4, 0, 0, 0, 99, 1, 5, 0, 0, 0, 99, 1, 2, 2, 0})
	f.Add(byte(3), []byte{1, 200, 7, 17, 200, 7, 2, 9, 0, 18, 9, 0, 4, 9, 0, 20, 9, 0, 1, 200, 7, 3, 2, 1, 6, 0, 0, 17, 100, 7, 18, 1, 0})
	pool := append(append(text(1, 60_000), random(1, 60_000)...), rich(1, 20_000)...)
	f.Fuzz(func(t *testing.T, kind byte, script []byte) {
		s := specs()[int(kind)%len(specs())]
		s.SegmentBytes = 128
		e := newEnds(s, 64<<10)
		flows := make([]*late, 3)
		for i := range flows {
			flows[i] = &late{flow: e.flow(), t: t}
		}
		for ; len(script) >= 3; script = script[3:] {
			a, b, c := script[0], int(script[1]), int(script[2])
			l := flows[int(a>>4)%len(flows)]
			switch a & 7 {
			case 0, 1:
				n := 1 + b*b
				at := c * (len(pool) - n) / 255
				l.encode(pool[at : at+n])
			case 2:
				for range 1 + b&7 {
					l.deliver()
				}
			case 3:
				l.enc.SetEffort(codec.Effort(b) % codec.Efforts)
			case 4:
				for range 1 + b&7 {
					l.answer()
				}
			case 5: // the decoder's end loses what it holds
				fresh := newEnds(s, 64<<10)
				e.recv = fresh.recv
				l.drain()
				l.close()
				*l = late{flow: e.flow(), t: t}
			case 6:
				l.enc.Rest()
				l.dec.Rest()
			case 7: // damage the newest payload's check
				if k := len(l.flight) - 1; k >= 0 && l.flight[k][0]&flagAnswer == 0 {
					l.flight[k][len(l.flight[k])-1] ^= 1 << (b & 7)
				}
			}
		}
		for _, l := range flows {
			l.drain()
			l.close()
		}
	})
}

// late is a flow whose payloads and answers are on their way until a test lets them arrive.
type late struct {
	*flow
	t      *testing.T
	flight [][]byte
	acks   []uint64
	asked  []codec.Ask
	want   []byte
}

func (l *late) encode(b []byte) {
	l.flight = append(l.flight, l.enc.Encode(nil, b))
	l.want = append(l.want, b...)
}

func (l *late) deliver() bool {
	if len(l.flight) == 0 {
		return false
	}
	p := l.flight[0]
	l.flight = l.flight[1:]
	got, err := l.dec.Decode(p)
	if ask := (*codec.AskError)(nil); errors.As(err, &ask) {
		l.asked = append(l.asked, ask.Ask)
		if len(l.asked) > 1 {
			l.t.Fatal("two asks at once")
		}
	} else if err != nil {
		l.t.Fatal(err)
	}
	if !bytes.HasPrefix(l.want, got) {
		l.t.Fatal("other bytes came out")
	}
	l.want = l.want[len(got):]
	if len(got) > 0 {
		l.acks = append(l.acks, l.dec.Decoded())
	}
	return true
}

func (l *late) answer() bool {
	switch {
	case len(l.acks) > 0:
		l.enc.Ack(l.acks[0])
		l.acks = l.acks[1:]
	case len(l.asked) > 0:
		ask := l.asked[0]
		l.asked = l.asked[1:]
		if err := l.enc.Resend(ask, func(p []byte) error { l.flight = append(l.flight, bytes.Clone(p)); return nil }); err != nil {
			l.t.Fatal(err)
		}
	default:
		return false
	}
	return true
}

// drain delivers everything.
func (l *late) drain() {
	for l.deliver() || l.answer() {
	}
	if len(l.want) > 0 || l.enc.Unacked() > 0 {
		l.t.Fatalf("%d bytes never came, %d are not acknowledged", len(l.want), l.enc.Unacked())
	}
}
