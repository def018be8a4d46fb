// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		bound             int64
		b, segment, extra uint64
	}{
		{0, 64 << 10, 64 << 10, 2 << 20},
		{1 << 20, 1 << 20, 64 << 10, 2 << 20},
		{64 << 20, 64 << 20, 1 << 20, 32 << 20},
		{1 << 30, 1 << 30, 1 << 20, 64 << 20},
		{1 << 50, 32 << 30, 1 << 20, 64 << 20},
	} {
		b, segment, size := sizes(c.bound)
		if b != c.b || segment != c.segment || size-b != c.extra || size%segment != 0 {
			t.Errorf("sizes(%d) = %d, %d, %d", c.bound, b, segment, size)
		}
	}
}

func TestRing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	_, segment, size := sizes(100 << 10)
	g := newRing(segment, size, heapSource(segment), &pool{})
	all := make([]byte, 3*int(size))
	for i := range all {
		all[i] = byte(r.IntN(3))
	}
	for pos := 0; pos < len(all); {
		n := min(1+r.IntN(200<<10), len(all)-pos)
		g.grow(uint64(pos), n)
		g.write(uint64(pos), all[pos:pos+n])
		pos += n
		if pos < 1000 {
			continue
		}
		at := max(0, pos-int(size)) + r.IntN(min(pos, int(size))-500)
		k := 1 + r.IntN(min(pos-at, 300<<10))
		got := make([]byte, k)
		if g.read(uint64(at), got); !bytes.Equal(got, all[at:at+k]) {
			t.Fatalf("read(%d, %d) gives other bytes", at, k)
		}
		// Compare with data that differs at one place.
		i := r.IntN(k)
		got[i] ^= 0x80
		if f := g.forward(uint64(at), got); f != i {
			t.Fatalf("forward gives %d, want %d", f, i)
		}
		if b := g.backward(uint64(at+k), got); b != k-1-i {
			t.Fatalf("backward gives %d, want %d", b, k-1-i)
		}
	}
	if g.held.Load() != int64(size) {
		t.Errorf("%d bytes held of %d", g.held.Load(), size)
	}
}

func TestIndex(t *testing.T) {
	bound, _, size := sizes(8 << 20)
	x := newIndex(size, nil)
	n, step := int(bound)/BytesPerEntry*7/10, uint64(BytesPerEntry)
	end := uint64(n)*step + 1
	r := rand.New(rand.NewPCG(2, 2))
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = r.Uint64()
		x.insert(hashes[i], uint64(i)*step+1, uint64(i)*step+1)
	}
	found := 0
	for i, h := range hashes {
		pos := uint64(i)*step + 1
		for _, p := range x.lookup(h, 1, end) {
			if p == pos {
				found++
			}
		}
		if c := x.lookup(h, pos+1, end); c[0] == pos {
			t.Fatal("a position below the lowest is given")
		}
	}
	if found < n*9/10 {
		t.Errorf("%d of %d anchors are found", found, n)
	}
}

// TestIndexBytes fills the indexes of logs of many sizes: no index takes more than 4 % of its log, nor much less.
func TestIndexBytes(t *testing.T) {
	for _, bound := range []int64{64 << 10, 1 << 20, 5 << 20, 64 << 20, 100 << 20} {
		_, _, size := sizes(bound)
		x := newIndex(size, nil)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range bound / 200 {
			x.insert(r.Uint64(), uint64(i*200+1), uint64(i*200+1))
		}
		if b := x.bytes(); b*25 > bound || b*60 < bound && bound >= 64<<20 {
			t.Errorf("%d bytes of index for %d", b, bound)
		}
	}
	for bound := int64(minBound); bound <= maxBound; bound += bound/3 + 4097 {
		_, _, size := sizes(bound)
		if first, most := indexSizes(size); int64(most)*ways*8*25 > bound || most%first != 0 {
			t.Errorf("%d of %d buckets for %d", first, most, bound)
		}
	}
}

// TestIndexKeepsTwo enters many places of one content and of others: it keeps the newest of the first, and the others.
func TestIndexKeepsTwo(t *testing.T) {
	x := newIndex(1<<20, nil)
	const hash = 0x123456789abcdef
	x.insert(hash, 1, 1)
	for i := range uint64(100) {
		x.insert(hash, 100+i, 1000)
	}
	c := x.lookup(hash, 1, 1000)
	if c[0]+c[1] != 199+198 || c[2] != 0 {
		t.Errorf("kept %v", c)
	}
}

func TestPositionWraps(t *testing.T) {
	x := newIndex(1<<20, nil)
	for _, head := range []uint64{1<<posBits - 5, 1 << posBits, 1<<posBits + 5, 5<<posBits + 3} {
		x.insert(head, head-3, head)
		if c := x.lookup(head, head-1000, head+100); c[0] != head-3 {
			t.Errorf("head %d: %v", head, c)
		}
	}
}
