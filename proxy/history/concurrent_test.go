// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestConcurrent has many legs of several groups in one store that is too small for all, while it is brought to the disk, looked at
// and purged: what may be referred to compares right, and what the receiver gives is right.
func TestConcurrent(t *testing.T) {
	for _, disk := range []int64{0, 32 << 20} {
		e := newEnds(t, 16<<20, disk)
		pool := noise(4<<20, 1) // blocks are taken from here, so that right bytes are known by their place
		var wg, around sync.WaitGroup
		stop := make(chan struct{})
		around.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
				}
				e.near.Usage()
				e.near.sync(false)
				e.far.sync(false)
				e.agree()
				if n%20 == 19 {
					e.far.Purge(nil, "b")
					e.near.Purge(nil, "c")
				}
			}
		})
		for w := range uint64(6) {
			wg.Go(func() { e.traffic(string(rune('a'+w%3)), pool, rand.New(rand.NewPCG(w, 1))) })
		}
		wg.Wait()
		close(stop)
		around.Wait()
		for _, s := range []*Store{e.near, e.far} {
			if u := s.Usage(); len(u.Problems) > 0 || u.MemoryBytes > 16<<20 || u.DiskBytes > disk {
				t.Errorf("%+v", u)
			}
		}
	}
}

// traffic is one leg after another.
func (e *ends) traffic(group string, pool []byte, r *rand.Rand) {
	type block struct {
		pos uint64
		gen uint64
		at  int
		n   int
	}
	g := e.senders().Group(group)
	rec := e.receivers().Open(group)
	defer rec.Close()
	l := g.Leg()
	defer l.Close()
	var done []block
	got := make([]byte, 64<<10)
	for range 400 {
		p := l.Begin()
		if len(done) > 0 {
			b := done[r.IntN(len(done))]
			lo, hi, ok := l.Extent(b.pos)
			if ok && b.gen == p.Generation && b.pos >= p.Low && lo <= b.pos && hi >= b.pos+uint64(b.n) {
				want := pool[b.at : b.at+b.n]
				if n := g.Forward(b.pos, want); n != b.n {
					e.t.Errorf("forward finds %d of %d bytes", n, b.n)
				}
				if n := g.Backward(b.pos+uint64(b.n), want); n != b.n {
					e.t.Errorf("backward finds %d of %d bytes", n, b.n)
				}
				err := rec.Read(b.gen, b.pos, got[:b.n])
				if err == nil && !bytes.Equal(got[:b.n], want) {
					e.t.Error("the receiver has other bytes")
				}
				if err != nil && !errors.Is(err, ErrAbsent) {
					e.t.Error(err)
				}
			}
		}
		b := block{gen: p.Generation, at: r.IntN(len(pool) - len(got)), n: 1 + r.IntN(len(got))}
		data := pool[b.at : b.at+b.n]
		var ok bool
		b.pos, ok = l.Record(data)
		l.Done()
		if !ok {
			l.Acknowledge(0, 0)
			continue
		}
		g.Insert([]Sample{{Hash: b.pos, At: b.n}}, b.pos)
		if r.IntN(10) == 0 {
			if !l.Read(b.pos, got[:b.n]) || !bytes.Equal(got[:b.n], data) {
				e.t.Error("an unacknowledged block cannot be sent again")
			}
		}
		rec.Write(p.Generation, b.pos, data)
		l.Acknowledge(b.pos, b.n)
		done = append(done, b)
	}
}
