// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"math"
	"testing"
	"time"
)

// The paper's path for a file of 18.4 MB without proxies.
func TestLatencyWithoutProxies(t *testing.T) {
	for wan, want := range map[float64][2]float64{10: {15.014, 14.72}, 100: {1.7664, 1.472}, 1000: {0.4416, 0.1472}} {
		s := direct(18.4e6, wan)
		if math.Abs(s.sequential()-want[0]) > 1e-3 || math.Abs(s.pipelined()-want[1]) > 1e-3 {
			t.Errorf("at %v Mbit/s: %v and %v s, want %v", wan, s.sequential(), s.pipelined(), want)
		}
	}
}

func TestLatencyWithACodec(t *testing.T) {
	f := &found{}
	f.add(passed{raw: 10e6, wire: 1e6, encode: 100 * time.Millisecond, decode: 50 * time.Millisecond})
	s := f.stages(10) // LAN 0.08, encode 0.1, WAN 0.8, decode 0.05
	if got := s.sequential(); math.Abs(got-1.11) > 1e-6 {
		t.Errorf("%v s, want 1.11", got)
	}
	if got := s.pipelined(); math.Abs(got-0.8) > 1e-6 {
		t.Errorf("%v s, want 0.8", got)
	}
}

func TestLinkDrainsAtItsRate(t *testing.T) {
	l := newLink(8e6) // a byte a microsecond, and 16,384 of them may wait before the link asks for no more
	// Nothing is waiting, and what is encoded while the link still has bytes costs no time.
	l.send(1000, 1000, 5*time.Millisecond)
	if l.now != 5*time.Millisecond || l.drained() != 6*time.Millisecond {
		t.Errorf("now %v, drained at %v", l.now, l.drained())
	}
	l.send(1000, 500, 500*time.Microsecond)
	if l.drained() != 6500*time.Microsecond {
		t.Errorf("drained at %v", l.drained())
	}
	l.send(1<<20, 100_000, 0)
	if want := l.drained() - 16384*time.Microsecond; l.now != want || l.drained() != 106500*time.Microsecond {
		t.Errorf("now %v, want %v, drained at %v", l.now, want, l.drained())
	}
}
