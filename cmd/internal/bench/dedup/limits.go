// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Sizes in bytes: what is measured, and what is written in between so that none of that is in a cache.
const (
	limitBytes = 16 << 20
	evictBytes = 96 << 20
)

// limits are how fast the machine does what no codec can do without, by one core's CPU time: each file byte is copied into the
// history, compared with it and hashed for the check. Slices have an entry a round.
type limits struct{ memcpy, memcmp, xxhash64 []float64 }

// measure takes each figure times times, on memory that no cache holds.
func (l *limits) measure(times int) {
	src, dst, evict := make([]byte, limitBytes), make([]byte, limitBytes), make([]byte, evictBytes)
	for i := 0; i < len(src); i += 8 {
		binary.LittleEndian.PutUint64(src[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	copy(dst, src)
	cold := func(f func()) float64 {
		for i := 0; i < len(evict); i += 64 {
			evict[i]++
		}
		return speedMBps(limitBytes, timed(f))
	}
	var sum uint64
	same := true
	for range times {
		l.memcpy = append(l.memcpy, cold(func() { copy(dst, src) }))
		l.memcmp = append(l.memcmp, cold(func() { same = bytes.Equal(src, dst) && same }))
		l.xxhash64 = append(l.xxhash64, cold(func() { sum ^= xxhash.Sum64(src) }))
	}
	if !same {
		panic("a copy differs from what was copied") // broken memory; nothing measured here means anything
	}
}

// encodeMBps is what encoding repeats can reach: copied, compared, hashed.
func (m limitsRow) encodeMBps() float64 { return 1 / (1/m.Memcpy + 1/m.Memcmp + 1/m.XXHash64) }

// decodeMBps is what decoding them can reach: copied and hashed.
func (m limitsRow) decodeMBps() float64 { return 1 / (1/m.Memcpy + 1/m.XXHash64) }

// settle is how long the machine is kept busy before the first figure, so that its clock has risen.
const settle = 50 * time.Millisecond
