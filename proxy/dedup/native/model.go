// SPDX-License-Identifier: Apache-2.0

package native

import "sync"

// A model predicts a flow's next bytes from those before it, for the literals of small blocks: a message of a hundred bytes has
// too few to tell where its matches are and how its letters are distributed, as zstd does, while a model that has learnt from the
// messages before needs to be told nothing. It computes with integers only, so that both ends predict the same.
//
// Where the last bytes were the same before, the byte that followed then is the guess, and one decision tells whether it is
// right: repeats cost some ten nanoseconds a byte at either end. Otherwise the byte is predicted bit by bit: each order gives
// the probability of a one after its last bytes, and a mixer weighs them by how right they have been; that costs ten times as much.
type model struct {
	nodes   [orders][groups]group
	hits    [(matchCap + 1) * missKinds]uint16 // how right guesses are, by the match's length and what it has missed
	weights [mixers][orders]int32              // in 65536ths
	past    [pastBytes]byte                    // the last bytes, a ring
	places  [placeSlots]uint16                 // where in it matchLeast bytes last ended, by their hash

	last    uint64 // the last eight bytes
	at      int    // bytes so far
	from    int    // the guess is past[from]; -1: there is none
	matched int    // guesses that were right in a row, and the bytes found alike before
	missed  int    // guesses that were wrong since the match was found

	// Of the byte that is predicted bit by bit.
	hash    [orders]uint32
	group   [orders]*group
	stretch [orders]int32
	node    uint32 // a one and the bits of this half of the byte so far
	high    uint32 // the first half
	mixer   int
	p       int32 // probability of a one, in 4096ths
}

// A group holds the counters of the fifteen places in half a byte, of one context, in one line of the processor's cache. What
// would be the counter of place 0 tells which context they are of.
type group [16]uint16

const (
	orders     = 4 // of 1, 2, 3 and 4 bytes
	groupBits  = 10
	groups     = 1 << groupBits
	mixers     = 4
	mixerRate  = 12
	pastBytes  = 1 << 15
	placeBits  = 13
	placeSlots = 1 << placeBits
	matchLeast = 5
	matchCap   = 31
	missKinds  = 4
	missMost   = 8  // a match that has been wrong so often is given up
	forgiven   = 16 // guesses right in a row after which what was wrong before is forgotten

	modelMost  = 512     // bytes of literals: more go to zstd
	modelPrime = 1 << 10 // bytes that a model learns from when it begins
	modelTried = 2 << 10 // bytes after which it is judged by what it makes of messages
)

var models = sync.Pool{New: func() any { return new(model) }}

// newModel takes a model that knows nothing from the pool, and lets it learn from bytes that both ends know.
func newModel(prime []byte) *model {
	m := models.Get().(*model)
	*m = model{from: -1}
	for i := range m.hits {
		m.hits[i] = unsure
	}
	for i := range m.weights {
		for k := range m.weights[i] {
			m.weights[i][k] = 1 << 16 * 2 / 5
		}
	}
	m.encode(make([]byte, 0, len(prime)+len(prime)/8+8), prime)
	return m
}

// guess returns the byte that followed when the last ones were the same, and how probable it is, in 4096ths.
func (m *model) guess() (want byte, p int32, ok bool) {
	if m.from < 0 {
		return 0, 0, false
	}
	return m.past[m.from&(pastBytes-1)], bounded(int32(probability(*m.hit()))), true
}

func (m *model) hit() *uint16 {
	return &m.hits[min(m.matched, matchCap)*missKinds+min(m.missed, missKinds-1)]
}

// guessed takes whether the guess was right.
func (m *model) guessed(hit int32) {
	s := m.hit()
	*s = correct(*s, hit)
	if hit == 0 {
		m.matched, m.missed = 0, m.missed+1
	} else if m.matched++; m.matched >= forgiven {
		m.missed = 0
	}
}

// begin prepares for a byte that was not guessed.
func (m *model) begin() {
	m.mixer = 0
	if m.from >= 0 {
		m.mixer = 2
	}
	for i := range orders {
		context := m.last&(1<<(8*(i+1))-1) + uint64(i+1)<<56
		m.hash[i] = uint32(context * 0x9e3779b97f4a7c15 >> 32)
		m.enter(i, m.hash[i])
	}
	m.node = 1
}

// halfway prepares for the second half of a byte.
func (m *model) halfway() {
	m.high, m.node = m.node&15, 1
	m.mixer |= 1
	for i := range orders {
		m.enter(i, (m.hash[i]+m.high*0x2f0b4c47+0x1234567)*0x85ebca6b)
	}
}

// enter finds an order's group of a context, new if another context has it.
func (m *model) enter(order int, hash uint32) {
	g := &m.nodes[order][hash>>(32-groupBits)]
	if check := uint16(hash) | 1; g[0] != check {
		*g = fresh
		g[0] = check
	}
	m.group[order] = g
}

// predict returns the probability of a one, in 4096ths.
func (m *model) predict() int32 {
	if m.node >= 16 {
		m.halfway()
	}
	n := m.node & 15
	w := &m.weights[m.mixer&(mixers-1)]
	s0 := int32(stretches[probability(m.group[0][n])])
	s1 := int32(stretches[probability(m.group[1][n])])
	s2 := int32(stretches[probability(m.group[2][n])])
	s3 := int32(stretches[probability(m.group[3][n])])
	m.stretch = [orders]int32{s0, s1, s2, s3}
	sum := int64(w[0])*int64(s0) + int64(w[1])*int64(s1) + int64(w[2])*int64(s2) + int64(w[3])*int64(s3)
	m.p = int32(squashes[(max(-2047, min(2047, sum>>16))+2048)&4095])
	return m.p
}

// learn takes what the bit was.
func (m *model) learn(bit int32) {
	miss := (bit<<12 - m.p) * mixerRate
	w := &m.weights[m.mixer&(mixers-1)]
	n := m.node & 15
	for i, g := range m.group {
		w[i] += (m.stretch[i]*miss + 1<<15) >> 16
		g[n] = correct(g[n], bit)
	}
	m.node = m.node<<1 | uint32(bit)
}

// byte returns the one whose eight bits have been learnt.
func (m *model) byte() byte { return byte(m.high<<4 | m.node&15) }

// end takes the whole byte.
func (m *model) end(b byte) {
	m.past[m.at&(pastBytes-1)] = b
	m.at++
	m.last = m.last<<8 | uint64(b)
	if m.from >= 0 {
		if m.from++; m.missed >= missMost {
			m.from = -1
		}
	}
	place := &m.places[(m.last&(1<<(8*matchLeast)-1))*0x9e3779b97f4a7c15>>(64-placeBits)]
	if m.from < 0 || m.matched == 0 {
		m.find(int(*place))
	}
	*place = uint16(m.at & (pastBytes - 1))
}

// find begins a match if what lies before from is what came last.
func (m *model) find(from int) {
	n := 0
	for n < min(matchCap, m.at) && m.past[(from-1-n)&(pastBytes-1)] == m.past[(m.at-1-n)&(pastBytes-1)] {
		n++
	}
	if n >= matchLeast && from != m.at&(pastBytes-1) {
		m.from, m.matched, m.missed = from, n, 0
	}
}
