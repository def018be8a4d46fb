// SPDX-License-Identifier: Apache-2.0

package native

import "sync"

// A model predicts a flow's next bit from the bytes before it, for the literals of small blocks: a message of a hundred bytes has
// too few to tell where its matches are and how its letters are distributed, as zstd does, while a model that has learnt from the
// messages before needs to be told nothing. It costs some tenths of a microsecond a byte at both ends. It computes with integers
// only, so that both ends predict the same.
//
// Each order gives the probability of a one after its last bytes, and one more predictor says what followed when the last bytes were
// the same before; a mixer weighs them by how right they have been.
type model struct {
	slots  [orders][modelSlots]uint16 // of an order, by hash of its bytes and the bits of this byte
	match  [matchCap + 1]uint16       // how right the match is, by its length
	mixer  [mixers][orders + 1]int32  // weights, in 65536ths
	past   [pastBytes]byte            // the last bytes, a ring
	places [placeSlots]uint16         // where in it matchLeast bytes last ended, by their hash

	last    uint64 // the last eight bytes
	at      int    // bytes so far
	from    int    // what the match predicts is past[from]
	matched int    // bytes that the match has been right for; 0: there is none

	// Of the bit that is predicted.
	bases   [orders]uint32
	index   [orders]uint32
	stretch [orders + 1]int32
	node    uint32 // a one and the bits of this byte so far
	set     int    // of the mixer's weights
	expect  int32  // the bit that the match predicts, -1: none
	p       int32  // probability of a one, in 4096ths
}

const (
	orders     = 5 // of 1, 2, 3, 4 and 6 bytes
	modelBits  = 16
	modelSlots = 1 << modelBits
	pastBytes  = 1 << 15
	placeBits  = 13
	placeSlots = 1 << placeBits
	matchLeast = 5
	matchCap   = 31
	mixers     = 4

	modelMost  = 512     // bytes of literals: more go to zstd
	modelPrime = 2 << 10 // bytes that a model learns from when it begins
)

var (
	orderMask = [orders]uint64{1<<8 - 1, 1<<16 - 1, 1<<24 - 1, 1<<32 - 1, 1<<48 - 1}
	models    = sync.Pool{New: func() any { return new(model) }}
)

// newModel takes a model that knows nothing from the pool, and lets it learn from bytes that both ends know.
func newModel(prime []byte) *model {
	m := models.Get().(*model)
	*m = model{}
	for i := range m.mixer {
		for k := range m.mixer[i] {
			m.mixer[i][k] = 1 << 16 * 2 / 5
		}
	}
	for _, b := range prime {
		m.begin()
		for i := 7; i >= 0; i-- {
			m.predict()
			m.learn(int32(b>>i) & 1)
		}
		m.end(b)
	}
	return m
}

// begin prepares for a byte.
func (m *model) begin() {
	for i, mask := range orderMask {
		m.bases[i] = uint32(((m.last&mask)+uint64(i+1)<<56)*0x9e3779b97f4a7c15>>32) | 1
	}
	m.node = 1
}

// predict sets p.
func (m *model) predict() {
	sum := int64(0)
	m.expect, m.set = -1, 0
	m.stretch[orders] = 0
	if m.matched > 0 {
		want := uint32(m.past[m.from]) | 1<<8
		shift := 8 - length(m.node)
		if want>>(shift+1) == m.node {
			m.expect = int32(want>>shift) & 1
			s := stretches[probability(m.match[min(m.matched, matchCap)])]
			if m.expect == 0 {
				s = -s
			}
			m.stretch[orders] = s
			m.set = 1 + min(m.matched/8, mixers-2)
		}
	}
	weights := &m.mixer[m.set]
	for i := range orders {
		m.index[i] = m.bases[i] * (2*m.node + 1) >> (32 - modelBits)
		m.stretch[i] = stretches[probability(m.slots[i][m.index[i]])]
		sum += int64(weights[i]) * int64(m.stretch[i])
	}
	sum += int64(weights[orders]) * int64(m.stretch[orders])
	m.p = squash(int32(max(-2047, min(2047, sum>>16))))
}

// learn takes what the bit was.
func (m *model) learn(bit int32) {
	miss := (bit<<12 - m.p) * 12
	weights := &m.mixer[m.set]
	for i := range weights {
		weights[i] += (m.stretch[i]*miss + 1<<15) >> 16
	}
	for i := range orders {
		s := &m.slots[i][m.index[i]]
		*s = correct(*s, bit)
	}
	if m.expect >= 0 {
		s := &m.match[min(m.matched, matchCap)]
		if m.expect == bit {
			*s = correct(*s, 1)
		} else {
			*s = correct(*s, 0)
			m.matched = 0
		}
	}
	m.node = m.node<<1 | uint32(bit)
}

// end takes the whole byte.
func (m *model) end(b byte) {
	m.past[m.at%pastBytes] = b
	m.at++
	m.last = m.last<<8 | uint64(b)
	if m.matched > 0 {
		m.matched++
		m.from = (m.from + 1) % pastBytes
	}
	place := &m.places[(m.last&(1<<(8*matchLeast)-1))*0x9e3779b97f4a7c15>>(64-placeBits)]
	if m.matched == 0 {
		m.from = int(*place)
		for m.matched < min(matchCap, m.at) && m.past[(m.from-1-m.matched)&(pastBytes-1)] == m.past[(m.at-1-m.matched)&(pastBytes-1)] {
			m.matched++
		}
		if m.matched < matchLeast || m.from == m.at%pastBytes {
			m.matched = 0
		}
	}
	*place = uint16(m.at % pastBytes)
}

// length returns how many bits of a byte a node has.
func length(node uint32) (n uint32) {
	for ; node > 1; node >>= 1 {
		n++
	}
	return n
}

// A counter is twelve bits of probability and four of how often it was corrected; its zero stands for one half, never corrected.
const unset = 1 << 15

func probability(s uint16) uint16 { return (s ^ unset) >> 4 }

// correct moves a counter towards a bit: less and less far, the more it has seen.
func correct(s uint16, bit int32) uint16 {
	s ^= unset
	p, n := int32(s>>4), s&15
	p += (bit<<12 - bit - p) * steps[n] >> 16
	return (uint16(p)<<4 | min(n+1, 15)) ^ unset
}

// steps are the parts, in 65536ths, by which a counter is corrected: 1/(n + 1.6).
var steps = func() (t [16]int32) {
	for n := range t {
		t[n] = int32(655360 / (10*n + 16))
	}
	return t
}()

// squash is 4096/(1 + exp(-x/256)) by interpolation between these points.
var squashes = [33]int32{
	1, 2, 4, 6, 10, 17, 27, 45, 74, 120, 194, 311, 488, 747, 1102, 1546, 2048,
	2550, 2994, 3349, 3608, 3785, 3902, 3976, 4022, 4051, 4069, 4079, 4086, 4090, 4092, 4094, 4095}

func squash(x int32) int32 {
	i, f := (x+2048)>>7, (x+2048)&127
	return (squashes[i]*(128-f) + squashes[i+1]*f + 64) >> 7
}

// stretches are the inverse of squash.
var stretches = func() (t [4096]int32) {
	next := 0
	for x := int32(-2047); x <= 2047; x++ {
		for p := int(squash(x)); next <= p; next++ {
			t[next] = x
		}
	}
	for ; next < len(t); next++ {
		t[next] = 2047
	}
	return t
}()
