// SPDX-License-Identifier: Apache-2.0

package native

// primeBytes is how many of a flow's last literal bytes prime a compressed stream that begins anew. Both ends keep them.
const primeBytes = 32 << 10

// primeLeast is how many have to be there for that.
const primeLeast = 64

// A tail keeps the last primeBytes literal bytes of a flow. What is referred to costs next to nothing anyway, and is left out.
type tail struct {
	buf []byte // a ring once it is full
	at  int    // where the next byte goes in a full one
}

func (t *tail) len() int { return len(t.buf) }

func (t *tail) clear() { t.buf, t.at = t.buf[:0], 0 }

func (t *tail) add(b []byte) {
	b = b[max(0, len(b)-primeBytes):]
	if room := primeBytes - len(t.buf); room > 0 {
		n := min(room, len(b))
		t.buf = append(t.buf, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(t.buf[t.at:], b)
		b = b[n:]
		if t.at += n; t.at == primeBytes {
			t.at = 0
		}
	}
}

// last returns a copy of the last n bytes.
func (t *tail) last(n int) []byte {
	all := append(append(make([]byte, 0, len(t.buf)), t.buf[t.at:]...), t.buf[:t.at]...)
	return all[len(all)-n:]
}
