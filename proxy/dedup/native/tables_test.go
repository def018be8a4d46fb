// SPDX-License-Identifier: Apache-2.0

package native

import (
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

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
