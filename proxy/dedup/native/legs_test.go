// SPDX-License-Identifier: Apache-2.0

package native

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// play lets legs carry about total bytes in random pieces of a pool, interleaved at random.
func play(s *sim, r *rand.Rand, pool []byte, legs, total, most int, event func()) {
	for len(s.legs) < legs {
		s.open()
	}
	for s.raw < total {
		l := s.legs[r.IntN(len(s.legs))]
		switch k := r.IntN(100); {
		case k < 40:
			if l.enc.Unacked() > 4<<20 {
				continue
			}
			n := 1 + r.IntN(1<<r.IntN(21))
			n = min(n, most, len(pool))
			at := r.IntN(len(pool) - n + 1)
			s.encode(l, pool[at:at+n])
		case k < 75:
			s.deliver(l)
		case k < 99:
			s.answer(l)
		default:
			event()
			for len(s.legs) < legs {
				s.open()
			}
		}
	}
	s.drain()
}

// replaceLeg aborts a leg; what is in flight arrives all at once or at the end.
func (s *sim) replaceLeg(r *rand.Rand) {
	i := r.IntN(len(s.legs))
	l := s.legs[i]
	s.abort(l)
	for s.deliver(l) {
	}
	s.legs = slices.Delete(s.legs, i, i+1)
}

func TestManyLegs(t *testing.T) {
	for _, c := range []struct {
		name  string
		bound int64
		pool  int
		total int
		legs  int
		most  int
		event string
	}{
		{"one", 8 << 20, 3 << 20, 20 << 20, 1, codec.MaxBlock, ""},
		{"evicting", 1 << 20, 3 << 20, 50 << 20, 3, codec.MaxBlock, ""},
		{"evicting small blocks", 100 << 10, 200 << 10, 10 << 20, 5, 2000, ""},
		{"many", 16 << 20, 8 << 20, 30 << 20, 12, codec.MaxBlock, ""},
		{"aborts", 1 << 20, 2 << 20, 15 << 20, 6, codec.MaxBlock, "abort"},
		{"retired", 4 << 20, 3 << 20, 15 << 20, 6, codec.MaxBlock, "retire"},
		{"restarts", 4 << 20, 3 << 20, 15 << 20, 6, codec.MaxBlock, "restart"},
		{"stalls", 1 << 20, 2 << 20, 15 << 20, 6, codec.MaxBlock, "stall"},
		{"all", 4 << 20, 3 << 20, 15 << 20, 6, codec.MaxBlock, "all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seeds, total := uint64(2), c.total
			if testing.Short() { // for the race detector, which is slow here
				seeds, total = 1, total/8
			}
			for seed := range seeds {
				r := rand.New(rand.NewPCG(seed, 9))
				pool := append(text(seed, c.pool/2), random(seed, c.pool/2)...)
				s := newSim(t, c.bound)
				s.lax = c.event == "retire" || c.event == "all" || c.event == "stall"
				if c.event == "stall" {
					s.ends.senders.SetStall(0)
				}
				events := map[string]func(){
					"":        func() {},
					"stall":   func() {},
					"abort":   func() { s.replaceLeg(r) },
					"retire":  func() { g := s.ends.senders.Group("g"); g.Retire(g.Generation()) },
					"restart": s.restart,
				}
				events["all"] = func() { events[[]string{"abort", "retire", "restart"}[r.IntN(3)]]() }
				play(s, r, pool, c.legs, total, c.most, events[c.event])
				t.Logf("raw %d, wire %d (1/%.1f), asks %d, sender %+v", s.raw, s.wire, float64(s.raw)/float64(s.wire), s.asks,
					s.ends.senders.Group("g").Stats())
			}
		})
	}
}
