// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// generatedBytes is the size of each generated file.
const generatedBytes = 6 << 20

// kinds are the generated files: what passes over a WAN, from what compresses well to what does not at all.
var kinds = []struct {
	name  string
	write func(rng *rand.Rand, dst []byte) []byte
}{
	{"logs.json", writeLogs},
	{"prose.txt", writeProse},
	{"program.bin", writeProgram},
	{"table.f32", writeTable},
	{"packed.bin", writePacked},
}

// generate makes one file of n bytes of each kind; the same seed gives the same bytes.
func generate(n int, seed uint64) []file {
	files := make([]file, len(kinds))
	for i, k := range kinds {
		rng := rand.New(rand.NewPCG(seed, 100+uint64(i)))
		data := make([]byte, 0, n+64<<10)
		for len(data) < n {
			data = k.write(rng, data)
		}
		files[i] = file{name: k.name, data: data[:n]}
	}
	return files
}

// writeLogs appends a line of a web server's log.
func writeLogs(rng *rand.Rand, dst []byte) []byte {
	verbs := [...]string{"GET", "GET", "GET", "POST", "PUT"}
	parts := [...]string{"api", "auth", "cart", "user", "search", "img", "static", "order"}
	return fmt.Appendf(dst, `{"ts":"2026-01-%02dT%02d:%02d:%02d.%03dZ","host":"web-%02d","method":"%s","path":"/%s/%d","status":%d,"us":%d,"trace":"%016x"}`+"\n",
		1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000), rng.IntN(16), verbs[rng.IntN(len(verbs))],
		parts[rng.IntN(len(parts))], rng.IntN(5000), 200+100*(rng.IntN(20)/18), rng.IntN(90000), rng.Uint64())
}

// writeProse appends a sentence. Words are drawn as in languages: the n-th most frequent one 1/n as often as the first.
func writeProse(rng *rand.Rand, dst []byte) []byte {
	for range 5 + rng.IntN(20) {
		rank := uint64(math.Exp(rng.Float64() * math.Log(20000)))
		dst = append(dst, word(rank)...)
		dst = append(dst, ' ')
	}
	dst[len(dst)-1] = '.'
	return append(dst, "\n "[rng.IntN(2)])
}

// word is the word of a rank, always the same; frequent ones are short.
func word(rank uint64) []byte {
	const syllables = "etanisorhedlucmfpgwybvkxqjzaeioust"
	var w []byte
	for r := rank * 2654435761 % 1000003; len(w) < 2+int(math.Log2(float64(rank+1)))/2; r /= 7 {
		w = append(w, syllables[r%uint64(len(syllables))], syllables[(r/3+rank)%uint64(len(syllables))])
	}
	return w
}

// writeProgram appends something like a function's machine code: few opcodes, registers, and addresses that come again.
func writeProgram(rng *rand.Rand, dst []byte) []byte {
	dst = append(dst, 0x55, 0x48, 0x89, 0xe5)
	for range 8 + rng.IntN(60) {
		opcode := byte(math.Exp(rng.Float64() * 5.5))
		dst = append(dst, 0x48, opcode, byte(rng.IntN(8)<<3|rng.IntN(8)))
		switch rng.IntN(4) {
		case 0:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(rng.IntN(4000))<<4)
		case 1:
			dst = append(dst, byte(8*rng.IntN(16)))
		}
	}
	return append(dst, 0x5d, 0xc3, 0x90, 0x90)
}

// writeTable appends measured values: each is near the one before it.
func writeTable(rng *rand.Rand, dst []byte) []byte {
	value := 100 * rng.Float64()
	for range 1024 {
		value += rng.NormFloat64()
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(math.Round(value*64)/64)))
	}
	return dst
}

// writePacked appends what no compressor gains anything of.
func writePacked(rng *rand.Rand, dst []byte) []byte {
	for range 512 {
		dst = binary.LittleEndian.AppendUint64(dst, rng.Uint64())
	}
	return dst
}
