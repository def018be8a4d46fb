// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

// TestCorruption flips every bit of payloads of all forms: the decoder asks or fails, and whatever it gives is right.
func TestCorruption(t *testing.T) {
	a, b := text(1, 1500), random(1, 900)
	blocks := [][]byte{a, b, b[200:800], append(text(2, 300), b[:700]...), a[:60], text(3, 200), a}
	for victim := range blocks {
		e := newEnds(1 << 20)
		enc := NewEncoder(e.senders.Group("g"), Options{})
		var payloads [][]byte
		for _, d := range blocks {
			payloads = append(payloads, enc.Encode(nil, d))
		}
		for bit := range len(payloads[victim]) * 8 {
			dec := NewDecoder(history.NewReceivers(1<<20), "g")
			for i, p := range payloads {
				if i == victim {
					p = bytes.Clone(p)
					p[bit/8] ^= 1 << (bit % 8)
				}
				got, err := dec.Decode(p)
				if i < victim && err != nil {
					t.Fatal(err)
				}
				// A bit of the zstd frame that means nothing may change without harm.
				if err == nil && got != nil && !bytes.Equal(got, blocks[i]) {
					t.Fatalf("block %d, bit %d: other bytes came out of block %d", victim, bit, i)
				}
				var ask *codec.AskError
				if err != nil && !errors.As(err, &ask) {
					break
				}
			}
			dec.Close()
		}
		enc.Close()
	}
}

// TestAsk damages payloads and lets the decoder ask while more is in flight.
func TestAsk(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 4))
		s := newSim(t, 8<<20)
		s.lax = true
		pool := append(text(seed, 300_000), random(seed, 300_000)...)
		l := s.open()
		for range 60 {
			n := 1 + r.IntN(1<<r.IntN(17))
			at := r.IntN(len(pool) - n)
			s.encode(l, pool[at:at+n])
			if r.IntN(6) == 0 {
				p := bytes.Clone(l.flight[len(l.flight)-1])
				p[len(p)-1-r.IntN(4)] ^= 4 // the check: what is structurally wrong is not asked for
				if p[0]&flagRestart == 0 {
					l.flight[len(l.flight)-1] = p
				}
			}
			for range r.IntN(3) {
				s.deliver(l)
			}
			for range r.IntN(3) {
				s.answer(l)
			}
		}
		s.drain()
		if s.asks == 0 {
			t.Error("nothing was asked for")
		}
	}
}

func TestAskTwice(t *testing.T) {
	l := newEnds(1 << 20).leg(t)
	l.enc.Encode(nil, []byte("some bytes, and a few more of them"))
	emit := func([]byte) error { return nil }
	if err := l.enc.Resend(codec.Ask{Block: 0, Retire: false}, emit); err != nil {
		t.Fatal(err)
	}
	if err := l.enc.Resend(codec.Ask{Block: 0, Retire: false}, emit); err == nil {
		t.Error("a block is given twice")
	}
	l.enc.Ack(1)
	for _, n := range []uint64{1, 2, 100} {
		if err := l.enc.Resend(codec.Ask{Block: n, Retire: false}, emit); !errors.Is(err, errNotHeld) {
			t.Errorf("block %d: %v", n, err)
		}
	}
}

func TestDamagedRestart(t *testing.T) {
	l := newEnds(1 << 20).leg(t)
	p := l.enc.Encode(nil, text(1, 1000))
	p[len(p)-1] ^= 1
	_, err := l.dec.Decode(p)
	var ask *codec.AskError
	if !errors.As(err, &ask) {
		t.Fatal(err)
	}
	err = l.enc.Resend(codec.Ask{Block: 0, Retire: false}, func(p []byte) error {
		p[len(p)-20] ^= 1
		_, err := l.dec.Decode(p)
		return err
	})
	if err == nil || errors.As(err, &ask) {
		t.Errorf("a damaged restart gives %v", err)
	}
}

// TestForgottenHistory loses the receiver's log without anybody being told.
func TestForgottenHistory(t *testing.T) {
	e, data := newEnds(8<<20), random(1, 2<<20)
	e.leg(t).sendAll(t, data, fixed(200_000))
	e.receivers = history.NewReceivers(8 << 20)
	for i, want := range []int{1, 0, 0} {
		l := e.leg(t)
		n := l.sendAll(t, data, fixed(200_000))
		if l.asks != want {
			t.Errorf("pass %d: %d asks, want %d", i, l.asks, want)
		}
		// The block asked for was not recorded anew, so it is still missing in the second pass.
		if i == 1 && n > 210_000 || i == 2 && n > 1000 {
			t.Errorf("pass %d: %d bytes on the wire", i, n)
		}
	}
}

// TestSmallerPeer has a receiver that holds less than the sender: with its bound known, nothing has to be asked for.
func TestSmallerPeer(t *testing.T) {
	for _, told := range []bool{true, false} {
		e := &ends{history.NewSenders(32 << 20), history.NewReceivers(1 << 20)}
		if told {
			e.senders.SetPeerBound(e.receivers.Bound())
		}
		data, asks := random(1, 6<<20), 0
		for range 2 {
			l := e.leg(t)
			l.sendAll(t, data, fixed(100_000))
			asks += l.asks
		}
		if told != (asks == 0) {
			t.Errorf("bound told: %v, asks: %d", told, asks)
		}
	}
}

// TestManyGroups opens more groups than a receiver holds.
func TestManyGroups(t *testing.T) {
	r := history.NewReceivers(1 << 20)
	var open []*Decoder
	for i := range 100 {
		open = append(open, NewDecoder(r, string(rune('a'+i))))
	}
	if n := len(r.Stats()); n > 64 {
		t.Errorf("%d groups are held", n)
	}
	for _, d := range open {
		d.Close()
	}
	NewDecoder(r, "another").Close()
	if _, ok := r.Stats()["another"]; !ok {
		t.Error("an unused group is not given up for another")
	}
}
