// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

// ends is one direction of a peering: the sender's and the receiver's histories of one group.
type ends struct {
	senders   *history.Senders
	receivers *history.Receivers
}

func newEnds(bound int64) *ends {
	e := &ends{history.NewSenders(bound), history.NewReceivers(bound)}
	e.senders.SetPeerEpoch(e.receivers.Epoch())
	e.senders.SetStall(time.Hour)
	return e
}

// leg is one connection: what it carries goes through an encoder and a decoder at once.
type leg struct {
	enc  *Encoder
	dec  *Decoder
	buf  []byte
	wire int
	asks int
}

func (e *ends) leg(t testing.TB) *leg {
	l := &leg{enc: NewEncoder(e.senders.Group("g"), Options{}), dec: NewDecoder(e.receivers, "g")}
	t.Cleanup(l.close)
	return l
}

func (l *leg) close() {
	l.enc.Close()
	l.dec.Close()
}

// send carries data in one block and acknowledges it.
func (l *leg) send(t testing.TB, data []byte) {
	t.Helper()
	l.buf = l.enc.Encode(l.buf[:0], data)
	l.wire += len(l.buf)
	if len(l.buf) > codec.MaxPayload {
		t.Fatalf("payload of %d bytes", len(l.buf))
	}
	l.receive(t, l.buf, data)
	l.enc.Ack(l.dec.Decoded())
}

// receive decodes a payload, asking for the block if need be, and compares.
func (l *leg) receive(t testing.TB, payload, want []byte) {
	t.Helper()
	got, err := l.dec.Decode(payload)
	var ask *codec.AskError
	if errors.As(err, &ask) {
		l.asks++
		t.Logf("ask: %v", ask)
		err = l.enc.Resend(ask.Ask, func(p []byte) (err error) {
			l.wire += len(p)
			got, err = l.dec.Decode(p)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes came out of %d, or others", len(got), len(want))
	}
}

// sendAll cuts data into blocks of sizes that next gives and carries them. It returns the bytes on the wire.
func (l *leg) sendAll(t testing.TB, data []byte, next func() int) int {
	t.Helper()
	before := l.wire
	for len(data) > 0 {
		n := min(next(), len(data))
		l.send(t, data[:n])
		data = data[n:]
	}
	return l.wire - before
}

func fixed(n int) func() int { return func() int { return n } }

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	s[0], s[1], s[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	_, _ = rand.NewChaCha8(s).Read(b)
	return b
}

var words = []string{"the ", "flow ", "path ", "window ", "of ", "a ", "GET /index.html ", "HTTP/1.1\r\n", "200 ", "congestion ", "\n", "history "}

func text(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, n+32)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		if r.IntN(8) == 0 {
			b = append(b, byte('0'+r.IntN(10)), byte('0'+r.IntN(10)))
		}
	}
	return b[:n]
}

// file returns up to n bytes of a real program: the Go tool, or the test itself.
func file(t testing.TB, n int) []byte {
	b, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "bin", "go"))
	if err != nil {
		if b, err = os.ReadFile("/proc/self/exe"); err != nil {
			t.Fatalf("no program to read: %v", err)
		}
	}
	return b[:min(n, len(b))]
}

// edit returns data with edits pieces replaced, inserted and deleted.
func edit(seed uint64, data []byte, edits int) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	out := bytes.Clone(data)
	for i := range edits {
		at, n := r.IntN(len(out)), 1+r.IntN(100)
		n = min(n, len(out)-at)
		piece := random(uint64(i), n)
		switch i % 3 {
		case 0:
			copy(out[at:], piece)
		case 1:
			out = append(out[:at], append(piece, out[at:]...)...)
		default:
			out = append(out[:at], out[at+n:]...)
		}
	}
	return out
}
