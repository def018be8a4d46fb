// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
)

// stream is an endless reproducible byte stream: runs of text, which compress, between runs of noise, which do not.
type stream struct {
	rng  *rand.ChaCha8
	text []byte
	left int
	kind bool
}

func newStream(seed uint64) *stream {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	s := &stream{rng: rand.NewChaCha8(key)}
	for len(s.text) < 4096 {
		s.text = append(s.text, words[s.rng.Uint64()%uint64(len(words))]...)
	}
	return s
}

var words = []string{"window ", "segment ", "round trip ", "loss ", "queue ", "acknowledged ", "bytes\n", "0x00ff ", "retransmit "}

func (s *stream) Read(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if s.left == 0 {
			s.kind, s.left = !s.kind, 1+int(s.rng.Uint64()%65536)
		}
		run := min(s.left, len(p))
		if s.kind {
			at := int(s.rng.Uint64() % uint64(len(s.text)))
			run = copy(p[:run], s.text[at:])
		} else {
			s.rng.Read(p[:run])
		}
		s.left -= run
		p = p[run:]
	}
	return n, nil
}

// streamOf is the first n bytes of the stream of a seed. Both ends read it in pieces of streamPiece, since where the
// pieces end changes what is drawn.
func streamOf(seed uint64, n int64) io.Reader {
	return io.LimitReader(&pieces{src: newStream(seed)}, n)
}

const streamPiece = 32 << 10

type pieces struct {
	src *stream
	buf [streamPiece]byte
	has []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.has) == 0 {
		_, _ = p.src.Read(p.buf[:]) // never fails
		p.has = p.buf[:]
	}
	n := copy(b, p.has)
	p.has = p.has[n:]
	return n, nil
}

// streamSum is the SHA-256 of streamOf, in hex.
func streamSum(seed uint64, n int64) string {
	h := sha256.New()
	_, _ = io.Copy(h, streamOf(seed, n))
	return sumHex(h)
}

func sumHex(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
