// SPDX-License-Identifier: Apache-2.0

package native

// Bits are coded by halving an interval of 32-bit numbers in the proportion that the model says; the leading bytes on which
// both ends of the interval agree go out. A part ends with the shortest number that lies in the last interval, zeros behind
// it left out.

// split gives the last number of the interval's part that stands for a one, of probability p in 4096ths, 1 to 4095.
func split(low, high uint32, p int32) uint32 {
	return low + uint32(uint64(high-low)*uint64(p)>>12)
}

// A bitWriter codes bits.
type bitWriter struct {
	low, high uint32
	out       []byte
}

func (w *bitWriter) put(bit, p int32) {
	if mid := split(w.low, w.high, p); bit != 0 {
		w.high = mid
	} else {
		w.low = mid + 1
	}
	for w.low>>24 == w.high>>24 {
		w.out = append(w.out, byte(w.low>>24))
		w.low, w.high = w.low<<8, w.high<<8|0xff
	}
}

// end returns out with the end of the part that began at start.
func (w *bitWriter) end(start int) []byte {
	dst, low := w.out, w.low
	for shift := 32; low > 0; { // the first of the numbers with the fewest bytes
		shift -= 8
		if v := (uint64(low) + 1<<shift - 1) >> shift << shift; v <= uint64(w.high) {
			for at := 24; at >= shift; at -= 8 {
				dst = append(dst, byte(v>>at))
			}
			break
		}
	}
	for len(dst) > start && dst[len(dst)-1] == 0 {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// A bitReader decodes what a bitWriter has coded. Any bytes stand for some bits.
type bitReader struct {
	low, high, v uint32
	part         []byte
}

func newBitReader(part []byte) bitReader {
	r := bitReader{high: ^uint32(0), part: part}
	for range 4 {
		r.next()
	}
	return r
}

func (r *bitReader) next() {
	r.v <<= 8
	if len(r.part) > 0 {
		r.v |= uint32(r.part[0])
		r.part = r.part[1:]
	}
}

func (r *bitReader) get(p int32) (bit int32) {
	if mid := split(r.low, r.high, p); r.v <= mid {
		r.high, bit = mid, 1
	} else {
		r.low = mid + 1
	}
	for r.low>>24 == r.high>>24 {
		r.low, r.high = r.low<<8, r.high<<8|0xff
		r.next()
	}
	return bit
}

// encode appends what stands for src to dst.
func (m *model) encode(dst, src []byte) []byte {
	w := bitWriter{high: ^uint32(0), out: dst}
	for _, b := range src {
		if want, p, ok := m.guess(); ok {
			hit := int32(0)
			if want == b {
				hit = 1
			}
			w.put(hit, p)
			if m.guessed(hit); hit != 0 {
				m.end(b)
				continue
			}
		}
		m.begin()
		for i := 7; i >= 0; i-- {
			bit := int32(b>>i) & 1
			w.put(bit, m.predict())
			m.learn(bit)
		}
		m.end(b)
	}
	return w.end(len(dst))
}

// decode fills dst with what a part stands for. Any part stands for something.
func (m *model) decode(dst, part []byte) {
	r := newBitReader(part)
	for k := range dst {
		if want, p, ok := m.guess(); ok {
			hit := r.get(p)
			if m.guessed(hit); hit != 0 {
				dst[k] = want
				m.end(want)
				continue
			}
		}
		m.begin()
		for range 8 {
			m.learn(r.get(m.predict()))
		}
		dst[k] = m.byte()
		m.end(dst[k])
	}
}
