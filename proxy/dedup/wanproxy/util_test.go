// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// ends is one direction of a peering: the caches at both of its ends.
type ends struct {
	spec       codec.Spec
	send, recv *Caches
}

func newEnds(spec codec.Spec, bound int64) *ends {
	send, _ := NewStore(2 * bound).Peer()
	_, recv := NewStore(2 * bound).Peer()
	return &ends{spec, send, recv}
}

// flow is a flow over a connection that delivers at once.
type flow struct {
	enc  *Encoder
	dec  *Decoder
	buf  []byte
	out  []byte // what the decoder has given and not been compared yet
	wire int
	asks int
}

func (e *ends) flow() *flow {
	return &flow{enc: NewEncoder(e.send, "g", e.spec), dec: NewDecoder(e.recv, "g", e.spec)}
}

func (f *flow) close() {
	f.enc.Ack(f.dec.Decoded())
	f.enc.Close()
	f.dec.Close()
}

// send carries one block and checks it.
func (f *flow) send(t testing.TB, data []byte) {
	t.Helper()
	f.buf = f.enc.Encode(f.buf[:0], data)
	if len(f.buf) > codec.MaxPayload {
		t.Fatalf("a payload of %d bytes", len(f.buf))
	}
	f.out = f.out[:0]
	if err := f.receive(f.buf); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.out, data) {
		t.Fatalf("%d bytes came out of %d, or others", len(f.out), len(data))
	}
	f.enc.Ack(f.dec.Decoded())
}

// receive gives the decoder a payload and answers what it asks.
func (f *flow) receive(p []byte) error {
	f.wire += len(p)
	got, err := f.dec.Decode(p)
	f.out = append(f.out, got...)
	ask := (*codec.AskError)(nil)
	if !errors.As(err, &ask) {
		return err
	}
	f.asks++
	var answers [][]byte
	if err := f.enc.Resend(ask.Ask, func(p []byte) error { answers = append(answers, bytes.Clone(p)); return nil }); err != nil {
		return err
	}
	for _, p := range answers {
		if err := f.receive(p); err != nil {
			return err
		}
	}
	return nil
}

// sendAll cuts data into blocks of sizes that next gives, and carries them. It returns the bytes on the wire.
func (f *flow) sendAll(t testing.TB, data []byte, next func() int) int {
	t.Helper()
	before := f.wire
	for len(data) > 0 {
		n := min(next(), len(data))
		f.send(t, data[:n])
		data = data[n:]
	}
	return f.wire - before
}

// carry sends data as one flow and returns the bytes on the wire.
func (e *ends) carry(t testing.TB, data []byte, next func() int) int {
	t.Helper()
	f := e.flow()
	defer f.close()
	return f.sendAll(t, data, next)
}

func fixed(n int) func() int { return func() int { return n } }

// varied gives sizes of all magnitudes up to a block's.
func varied(seed uint64) func() int {
	r := rand.New(rand.NewPCG(seed, 3))
	return func() int { return 1 + r.IntN(1<<(1+r.IntN(20))) }
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1], s[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

func text(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, n+64)
	for len(b) < n {
		b = fmt.Appendf(b, "%d GET /path/%d/index.html 200 agent=%x\n", len(b), r.IntN(500), r.Uint32())
	}
	return b[:n]
}

// rich is data full of the byte that begins commands.
func rich(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	b := random(seed, n)
	for i := range b {
		if r.IntN(3) > 0 {
			b[i] = magic
		}
	}
	return b
}

// edit returns data with pieces inserted, replaced and deleted.
func edit(seed uint64, data []byte, edits int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	out := bytes.Clone(data)
	for i := range edits {
		at, n := r.IntN(len(out)), 1+r.IntN(3000)
		n = min(n, len(out)-at)
		switch piece := random(uint64(i), n); i % 3 {
		case 0:
			copy(out[at:], piece)
		case 1:
			out = slices.Insert(out, at, piece...)
		default:
			out = slices.Delete(out, at, at+n)
		}
	}
	return out
}

// specs are all codecs, second stages and some segment sizes.
func specs() (list []codec.Spec) {
	for _, k := range []codec.Kind{codec.WANProxy, codec.WANProxy2} {
		for _, s := range []codec.Stage{codec.StageNone, codec.Zstd, codec.Zlib} {
			list = append(list, codec.Spec{Kind: k, Stage: s}, codec.Spec{Kind: k, Stage: s, SegmentBytes: 128})
		}
	}
	return list
}

func name(s codec.Spec) string { return fmt.Sprintf("%v-%d", s, s.Segment()) }
