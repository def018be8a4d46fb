// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

// FuzzDecode feeds payloads of any kind to a decoder that holds some history.
func FuzzDecode(f *testing.F) {
	e := newEnds(1 << 20)
	enc := NewEncoder(e.senders.Group("g"), Options{})
	base := [][]byte{enc.Encode(nil, text(1, 4000)), enc.Encode(nil, random(1, 4000))}
	for _, d := range [][]byte{random(1, 4000), text(1, 4000)[100:900], text(2, 500), {1, 2, 3}, make([]byte, 5000)} {
		f.Add(enc.Encode(nil, d), []byte{})
	}
	kept, err := os.ReadFile(goldenFile)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.FieldsSeq(kept) {
		p, err := hex.DecodeString(string(line))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, p)
	}
	_ = enc.Resend(codec.Ask{Block: 2, Retire: true}, func(p []byte) error { f.Add(p, p); return nil })
	f.Fuzz(func(t *testing.T, p, q []byte) {
		const bound = 1 << 20
		r := history.NewReceivers(bound)
		dec := NewDecoder(r, "g")
		defer dec.Close()
		for _, p := range base {
			if _, err := dec.Decode(p); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range [][]byte{p, q, p} {
			before := dec.Decoded()
			data, err := dec.Decode(p)
			var ask *codec.AskError
			if err != nil && !errors.As(err, &ask) {
				break
			}
			if len(data) > codec.MaxBlock || (data != nil) != (dec.Decoded() == before+1) {
				t.Fatalf("%d bytes, %d blocks", len(data), dec.Decoded()-before)
			}
		}
		if n := r.Stats()["g"].HeldBytes; n > 4*bound {
			t.Fatalf("%d bytes are held", n)
		}
	})
}

// FuzzRoundTrip lets a script of three-byte steps drive a peering.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{0, 9, 1, 4, 200, 2, 1, 0, 0, 2, 0, 0, 8, 90, 3, 3, 0, 0, 0, 255, 9, 5, 0, 0, 1, 0, 0})
	f.Add([]byte{0, 255, 0, 0, 255, 0, 1, 0, 0, 2, 0, 0, 0, 255, 0, 12, 255, 0, 4, 0, 0, 0, 255, 0, 1, 1, 0, 1, 0, 0})
	f.Add([]byte{0, 9, 1, 6, 1, 4, 0, 9, 2, 1, 2, 0, 6, 3, 2, 0, 9, 3, 0, 200, 8, 1, 3, 0, 6, 2, 3, 0, 8, 9, 0, 100, 9, 1, 3, 0, 2, 7, 0})
	pool := append(text(1, 100_000), random(1, 100_000)...)
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newSim(t, 64<<10)
		s.lax = true
		for range 3 {
			s.open()
		}
		for ; len(script) >= 3; script = script[3:] {
			a, b, c := int(script[0]), int(script[1]), int(script[2])
			l := s.legs[a>>4%len(s.legs)]
			switch a & 7 {
			case 0, 4:
				n := 1 + b*b
				at := c * (len(pool) - n) / 255
				s.encode(l, pool[at:at+n])
			case 1, 5:
				for range 1 + b&3 {
					s.deliver(l)
				}
			case 6:
				if b&1 != 0 {
					l.enc.Rest()
				}
				if b&2 != 0 {
					l.dec.Rest()
				}
				l.enc.SetEffort(codec.Effort(c % int(codec.Efforts)))
			case 2:
				for range 1 + b&7 {
					s.answer(l)
				}
			case 3:
				g := s.ends.senders.Group("g")
				switch b & 3 {
				case 0:
					g.Retire(g.Generation())
				case 1:
					s.restart()
				default:
					s.abort(l)
				}
				for len(s.legs) < 3 {
					s.open()
				}
			case 7: // damage the newest payload's check
				if k := len(l.flight) - 1; k >= 0 && l.flight[k][0]&flagRestart == 0 {
					l.flight[k][len(l.flight[k])-1] ^= 1 << (b & 7)
				}
			}
		}
		s.drain()
	})
}
