// SPDX-License-Identifier: Apache-2.0

package native

import (
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

func TestBackoff(t *testing.T) {
	var b backoff
	tried := 0
	for range 100 << 20 / 10_000 { // 100 MiB that do not compress
		if b.try(10_000) {
			tried++
			b.result(10_000, 10_003)
		}
	}
	if tried < 50 || tried > 400 {
		t.Errorf("%d of 10485 attempts", tried)
	}
	b = backoff{}
	for range 1000 {
		if b.try(50) {
			b.result(50, 53)
		}
	}
	if !b.try(10_000) {
		t.Error("a few odd bytes keep a large block from being compressed")
	}
	if b.try(tooShort - 1) {
		t.Error("a few bytes are compressed")
	}
}

// TestReplacedInTables replaces bytes of data that has no anchors.
func TestReplacedInTables(t *testing.T) {
	e, data := newEnds(8<<20), make([]byte, codec.MaxBlock)
	for i := range data {
		data[i] = byte(i >> 4)
	}
	copy(data, random(1, 10_000))
	e.leg(t).sendAll(t, data, fixed(codec.MaxBlock))
	for i := 100_000; i < len(data); i += 200_000 {
		data[i] ^= 1
	}
	l := e.leg(t)
	l.sendAll(t, data, fixed(codec.MaxBlock))
	if c := l.enc.Counters(); c.LiteralBytes > 5*batch {
		t.Errorf("five bytes changed: %+v", c)
	}
}
