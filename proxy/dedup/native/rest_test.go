// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// restLeg makes a leg with a second stage of its own.
func (e *ends) restLeg(t testing.TB, stage codec.Stage) *leg {
	l := &leg{enc: NewEncoder(e.senders.Group("g"), Options{Stage: stage}), dec: NewDecoder(e.receivers, "g")}
	t.Cleanup(l.close)
	return l
}

// TestEffortsAndRests changes the effort and lets both ends or the sending one rest in the midst of flows: nothing has to be asked for.
func TestEffortsAndRests(t *testing.T) {
	for stage := range codec.Stage(3) {
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, uint64(stage)))
			pool := append(text(seed, 400_000), random(seed, 100_000)...)
			e := newEnds(2 << 20)
			for range 3 {
				l := e.restLeg(t, stage)
				for range 100 {
					n := 1 + r.IntN(1<<r.IntN(18))
					at := r.IntN(len(pool) - n)
					l.send(t, pool[at:at+n])
					switch r.IntN(8) {
					case 0:
						l.enc.SetEffort(codec.Effort(r.IntN(int(codec.Efforts))))
					case 1:
						l.enc.Rest()
					case 2:
						l.enc.Rest()
						l.dec.Rest()
					}
				}
				if l.asks > 0 {
					t.Errorf("stage %v, seed %d: %d asks", stage, seed, l.asks)
				}
				l.close()
			}
		}
	}
}

// TestRawIsRemembered: what was sent with the least effort is referred to later.
func TestRawIsRemembered(t *testing.T) {
	e, data := newEnds(8<<20), file(t, 4<<20)
	l := e.leg(t)
	l.enc.SetEffort(codec.EffortRaw)
	if n := l.sendAll(t, data, fixed(100_000)); n < len(data) {
		t.Errorf("%d bytes for %d", n, len(data))
	}
	if n := e.leg(t).sendAll(t, data, fixed(codec.MaxBlock)); n > 3000 {
		t.Errorf("the repetition takes %d bytes", n)
	}
}

// TestDecoderRestsAlone: what it gave up it has to ask for.
func TestDecoderRestsAlone(t *testing.T) {
	for stage := range codec.Stage(3) {
		l := (&ends{}).withoutHistory(t, stage)
		for i := range uint64(5) {
			l.send(t, text(i, 8000))
			l.dec.Rest()
		}
		if want := 2; stage == codec.StageNone && l.asks > 0 || stage != codec.StageNone && l.asks != want {
			t.Errorf("%v: %d asks", stage, l.asks)
		}
	}
}

// TestPrimed: a stream that begins anew after a rest knows what came before.
func TestPrimed(t *testing.T) {
	for _, stage := range []codec.Stage{codec.Zstd, codec.Zlib} {
		l := (&ends{}).withoutHistory(t, stage)
		var data []byte
		for i := range 100 {
			data = fmt.Appendf(data, "line %x and what it says\n", uint32(i)*2654435761)
		}
		l.send(t, data)
		first := l.wire
		l.enc.Rest()
		l.dec.Rest()
		if l.send(t, data); l.wire-first > first/8 {
			t.Errorf("%v: %d bytes at first, %d again after a rest", stage, first, l.wire-first)
		}
	}
}

func (e *ends) withoutHistory(t testing.TB, stage codec.Stage) *leg {
	l := &leg{enc: NewEncoder(nil, Options{Stage: stage}), dec: NewDecoder(nil, "")}
	t.Cleanup(l.close)
	return l
}

// TestIdleHolds measures what flows hold that have carried much and rest.
func TestIdleHolds(t *testing.T) {
	const flows, most = 16, 256 << 10 // bytes
	e := newEnds(4 << 20)
	data := append(text(1, 1<<20), random(1, 1<<20)...)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC() // twice, as pools keep what they have for one more collection
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for range 2 { // until the history has all its memory
		l := e.leg(t)
		l.sendAll(t, data, fixed(300_000))
		l.sendAll(t, random(2, 8<<20), fixed(1<<20))
		l.close()
	}
	before := heap()
	var legs []*leg
	for range flows {
		l := e.leg(t)
		l.enc.SetEffort(codec.EffortBetter)
		l.sendAll(t, data, fixed(300_000))
		l.buf = nil
		l.enc.Rest()
		l.dec.Rest()
		legs = append(legs, l)
	}
	if held := (heap() - before) / flows; held > most {
		t.Errorf("%d bytes are held by an idle flow", held)
	} else {
		t.Logf("%d bytes are held by an idle flow", held)
	}
	runtime.KeepAlive(legs)
}
