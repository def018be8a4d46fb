// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

func record(t *testing.T, l *Leg, data []byte) uint64 {
	t.Helper()
	l.Begin()
	defer l.Done()
	pos, ok := l.Record(data)
	if !ok {
		t.Fatal("a block is not recorded")
	}
	return pos
}

func TestExtent(t *testing.T) {
	s := NewSenders(1 << 20).Group("g")
	a, b := s.Leg(), s.Leg()
	data := make([]byte, 1000)
	p := record(t, a, data)
	q := record(t, b, data)
	if q != p+1000 {
		t.Fatalf("positions %d and %d", p, q)
	}
	b.Begin()
	if _, _, ok := b.Extent(p); ok {
		t.Error("another leg's unacknowledged block may be referred to")
	}
	if lo, hi, ok := b.Extent(q + 5); !ok || lo != q || hi != q+1000 {
		t.Errorf("the own block is [%d, %d), %v", lo, hi, ok)
	}
	a.Acknowledge(p, 1000)
	if lo, hi, ok := b.Extent(p + 5); !ok || lo != p || hi != p+1000 {
		t.Errorf("the acknowledged block is [%d, %d), %v", lo, hi, ok)
	}
	b.Done()
	s.Retire(s.Generation())
	if _, _, ok := b.Extent(p); ok {
		t.Error("a retired generation may be referred to")
	}
	b.Close()
	c := s.Leg()
	if c.Begin(); c.pending.count() != 0 {
		t.Error("a leg begins with blocks")
	}
	if _, _, ok := c.Extent(q); ok {
		t.Error("a void range may be referred to")
	}
}

// TestMargin has one leg that is never acknowledged.
func TestMargin(t *testing.T) {
	set := NewSenders(1 << 20)
	set.SetStall(time.Hour)
	s := set.Group("g")
	slow, fast := s.Leg(), s.Leg()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	first := record(t, slow, data)
	for range 5 {
		fast.Begin()
		pos, ok := fast.Record(data)
		fast.Done()
		if ok {
			fast.Acknowledge(pos, len(data))
		} else {
			fast.Acknowledge(0, 0)
		}
	}
	if st := s.Stats(); st.Head != first+2<<20 {
		t.Errorf("the head is at %d, %d beyond the slow block", st.Head, st.Head-first)
	}
	s.stall = 0
	record(t, fast, data)
	got := make([]byte, len(data))
	if slow.Read(first, got); !bytes.Equal(got, data) {
		t.Error("an expelled block's bytes are lost")
	}
	if _, ok := slow.Current(first); ok {
		t.Error("an expelled block still has its place")
	}
	slow.Acknowledge(first, len(data))
	if len(slow.expelled) > 0 || slow.skip > 0 {
		t.Error("an acknowledged block is kept")
	}
	again := record(t, slow, data)
	slow.Acknowledge(again, len(data))
	if lo, hi, ok := slow.Extent(again); !ok || lo > again || hi < again+1<<20 {
		t.Errorf("after it was expelled a leg gets nothing acknowledged: [%d, %d)", lo, hi)
	}
	for _, l := range []*Leg{slow, fast, slow} {
		l.Close()
	}
	if len(s.open) != 0 {
		t.Error("a closed leg holds the log")
	}
}

func TestReceiver(t *testing.T) {
	set := NewReceivers(1 << 20)
	r := set.Open("g")
	defer r.Close()
	data := []byte("some bytes")
	got := make([]byte, len(data))
	if err := r.Read(7, 100, got); !errors.Is(err, ErrGeneration) {
		t.Errorf("reading before anything was written: %v", err)
	}
	r.Write(7, 100, data)
	if err := r.Read(7, 100, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, pos := range []uint64{99, 101, 1 << 40, 1<<64 - 1, 1<<64 - 5} {
		if err := r.Read(7, pos, got); !errors.Is(err, ErrAbsent) {
			t.Errorf("reading at %d: %v", pos, err)
		}
	}
	r.Write(6, 200, data) // an older generation
	r.Write(7, 1<<64-5, data)
	r.Write(7, MaxPos, data)
	if err := r.Read(6, 200, got); !errors.Is(err, ErrGeneration) {
		t.Errorf("the older generation: %v", err)
	}
	r.Write(7, 1<<40, data) // far ahead: evicts all, allocates one segment
	if err := r.Read(7, 100, got); !errors.Is(err, ErrAbsent) {
		t.Errorf("an evicted range: %v", err)
	}
	r.Write(7, 100, data) // too late
	if err := r.Read(7, 100, got); !errors.Is(err, ErrAbsent) {
		t.Errorf("a range that came too late: %v", err)
	}
	if err := r.Read(7, 1<<40, got); err != nil {
		t.Error(err)
	}
	r.Write(9, 50, data)
	if err := r.Read(7, 1<<40, got); !errors.Is(err, ErrGeneration) {
		t.Errorf("the generation before: %v", err)
	}
	if st := set.Stats()["g"]; st.HeldBytes > 2<<20 || st.KnownBytes != int64(len(data)) || st.Generation != 9 {
		t.Errorf("%+v", st)
	}
}

func TestPeerEpoch(t *testing.T) {
	set := NewReceivers(1 << 20)
	set.SetPeerEpoch(1)
	set.Open("g").Write(5, 1, []byte("x"))
	set.SetPeerEpoch(1)
	if set.Stats()["g"].KnownBytes != 1 {
		t.Error("the same peer's log is dropped")
	}
	set.SetPeerEpoch(2)
	if set.Stats()["g"].KnownBytes != 0 {
		t.Error("a restarted peer's log is kept")
	}
	send := NewSenders(1 << 20)
	g := send.Group("g")
	send.SetPeerEpoch(1)
	before := g.Generation()
	send.SetPeerEpoch(1)
	if g.Generation() != before {
		t.Error("the same peer retires a generation")
	}
	send.SetPeerEpoch(2)
	if g.Generation() <= before {
		t.Error("a restarted peer does not retire the generation")
	}
}
