// SPDX-License-Identifier: Apache-2.0

package native

// A counter is how probable a one is, in twelve bits, and how often that was corrected, in four.
const unsure = 1 << 15 // one half, never corrected

// fresh is a group that has seen nothing.
var fresh = func() (g group) {
	for i := range g {
		g[i] = unsure
	}
	return g
}()

func probability(counter uint16) uint16 { return counter >> 4 }

// bounded is a probability in 4096ths that leaves both bits possible.
func bounded(p int32) int32 { return max(1, min(p, 4095)) }

// correct moves a counter towards a bit: less and less far, the more it has seen.
func correct(counter uint16, bit int32) uint16 {
	p, n := int32(counter>>4), counter&15
	p += (bit<<12 - bit - p) * steps[n] >> 16
	return uint16(p)<<4 | min(n+1, 15)
}

// steps are the parts, in 65536ths, by which a counter is corrected: 1/(n + 1.6).
var steps = func() (t [16]int32) {
	for n := range t {
		t[n] = int32(655360 / (10*n + 16))
	}
	return t
}()

// squashes are 4096/(1 + exp(-x/256)) for x from -2048 on, bounded.
var squashes = func() (t [4096]int16) {
	for i := range t {
		t[i] = int16(bounded(squash(int32(i) - 2048)))
	}
	return t
}()

// squash is 4096/(1 + exp(-x/256)) by interpolation between these points: exact numbers, the same on every machine.
func squash(x int32) int32 {
	points := [33]int32{
		1, 2, 4, 6, 10, 17, 27, 45, 74, 120, 194, 311, 488, 747, 1102, 1546, 2048,
		2550, 2994, 3349, 3608, 3785, 3902, 3976, 4022, 4051, 4069, 4079, 4086, 4090, 4092, 4094, 4095}
	i, f := (x+2048)>>7, (x+2048)&127
	return (points[i]*(128-f) + points[i+1]*f + 64) >> 7
}

// stretches are the inverse of squash.
var stretches = func() (t [4096]int16) {
	next := 0
	for x := int32(-2047); x <= 2047; x++ {
		for p := int(squash(x)); next <= p; next++ {
			t[next] = int16(x)
		}
	}
	for ; next < len(t); next++ {
		t[next] = 2047
	}
	return t
}()
