// SPDX-License-Identifier: Apache-2.0

package mathtest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// halves takes a result apart that is two numbers.
func halves(result uint64) (high, low uint64) { return result >> 32, result & math.MaxUint32 }

// parts returns a * b / c, exact and rounded down.
func parts(a, b, c uint64) uint64 {
	p := new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b))
	return p.Div(p, new(big.Int).SetUint64(c)).Uint64()
}

// windows are sizes from the least to beyond any real one, in packets.
func windows() []uint64 {
	w := []uint64{2, 3, 4, 5, 7, 10, 14, 15, 16, 37, 38, 39, 100, 118, 119, 1000, 83_000, 94_717, 94_718, 1 << 20, 1<<31 - 1}
	r := rand.New(rand.NewPCG(7, 8))
	for range 100 {
		w = append(w, 2+r.Uint64()%100_000)
	}
	return w
}

// What a loss leaves: RFC 5681, equation 4, half and never less than 2, and the factors of the others.
func TestDecrease(t *testing.T) {
	k := newKernel(t)
	for _, w := range windows() {
		for _, f := range []struct{ keep, of uint64 }{{1, 2}, {717, 1024}, {819, 1024}, {4, 5}, {64, 128}, {102, 128}} {
			if got, want := k.call(mathTlFunctionTL_DECREASE, w, f.keep, f.of), max(parts(w, f.keep, f.of), 2); got != want {
				t.Errorf("of %d packets a loss that keeps %d/%d leaves %d, want %d", w, f.keep, f.of, got, want)
			}
			less := f.of - f.keep
			if got, want := k.call(mathTlFunctionTL_DECREASE_BY, w, less, f.of), max(w-parts(w, less, f.of), 2); got != want {
				t.Errorf("of %d packets a loss of %d/%d leaves %d, want %d", w, less, f.of, got, want)
			}
		}
	}
}

// RFC 9438, 4.7: below the last maximum the next one is cwnd (1 + beta) / 2, else cwnd; BIC's paper has the same.
func TestFastConvergence(t *testing.T) {
	k := newKernel(t)
	for name, beta := range map[string]struct{ keep, of, permille uint64 }{"cubic": {717, 1024, 700}, "bic": {819, 1024, 800}} {
		for _, w := range windows() {
			for _, last := range []uint64{0, w - 1, w} {
				if got := k.call(mathTlFunctionTL_CONVERGE, w, last, beta.keep, beta.of); got != w {
					t.Errorf("%s: a loss at %d after one at %d has %d for the next maximum", name, w, last, got)
				}
			}
			got := k.call(mathTlFunctionTL_CONVERGE, w, w+1, beta.keep, beta.of)
			near(t, name+": the next maximum", got, float64(w)*float64(1000+beta.permille)/2000, 1+float64(w)/2000)
		}
	}
}

// W(t) of RFC 9438, figure 1, over the whole curve, and the pace towards it: cwnd / (W - cwnd) packets for one.
func TestCubicTarget(t *testing.T) {
	k := newKernel(t)
	for _, c := range []struct{ origin, below uint64 }{{100, 0}, {100, 30}, {1000, 300}, {20_000, 6000}, {10, 10}} {
		middle := k.call(mathTlFunctionTL_CUBIC_K, c.below)
		for _, at := range []uint64{0, 1, 100, 1024, 3 * 1024, middle / 2, middle, middle + 1, 2 * middle, 60 * 1024} {
			want := float64(c.origin) + 0.4*math.Pow((float64(at)-float64(middle))/1024, 3)
			near(t, "the curve", k.call(mathTlFunctionTL_CUBIC_TARGET, c.origin, middle, at), max(want, 0), 1)
		}
		if begin := k.call(mathTlFunctionTL_CUBIC_TARGET, c.origin, middle, 0); begin < c.origin-c.below || begin > c.origin-c.below+1+c.below/50 {
			t.Errorf("a curve that fell by %d from %d begins at %d", c.below, c.origin, begin)
		}
	}
	for _, w := range windows()[:20] {
		for _, more := range []uint64{1, 2, 5, w / 2, w} {
			if got := k.call(mathTlFunctionTL_CUBIC_COUNT, w, w+more); more > 0 && got != w/more {
				t.Errorf("from %d to %d one for %d packets, want %d", w, w+more, got, w/more)
			}
		}
		if got := k.call(mathTlFunctionTL_CUBIC_COUNT, w, w); got != 100*w {
			t.Errorf("a window of %d at its target grows by one for %d packets, want %d", w, got, 100*w)
		}
	}
}

// RFC 9438, 4.3: alpha = 3 (1 - beta) / (1 + beta) = 0.529 packets a round trip.
func TestCubicRenoFriendly(t *testing.T) {
	k := newKernel(t)
	for _, w := range windows()[:18] {
		got := k.call(mathTlFunctionTL_CUBIC_RENO_COUNT, w)
		near(t, "packets for one of Reno's", got, float64(w)*(1+0.7)/(3*(1-0.7)), 1+float64(w)/60)
	}
}

// RFC 9406, 4.2 and 4.3: RTT / 8 from 4 to 16 ms. The paper: a train of ACKs of half a round trip; where the sender is paced
// a whole one, and the time of four super-packets of 64 KiB up to 1 ms.
func TestHyStart(t *testing.T) {
	k := newKernel(t)
	for rtt, want := range map[uint64]uint64{1: 4000, 8000: 4000, 31_999: 4000, 32_000: 4000, 40_000: 5000, 100_000: 12_500, 128_000: 16_000, 1e6: 16_000} {
		if got := k.call(mathTlFunctionTL_HYSTART_DELAY, rtt); got != want {
			t.Errorf("at %d us a queue begins %d us above, want %d", rtt, got, want)
		}
	}
	for _, c := range []struct{ rtt, rate, paced, want uint64 }{
		{50_000, 0, 0, 25_000}, {50_000, 0, 1, 50_000},
		{50_000, 1e6, 1, 51_000}, // four super-packets take 262 ms: 1 ms
		{50_000, 1e9, 1, 50_262}, {50_000, 1e9, 0, 25_131},
		{50_000, math.MaxUint64, 1, 50_000}, // as fast as can be
	} {
		if got := k.call(mathTlFunctionTL_HYSTART_TRAIN, c.rtt, c.rate, c.paced); got != c.want {
			t.Errorf("at %d us, %d bytes/s, paced %d a train may last %d us, want %d", c.rtt, c.rate, c.paced, got, c.want)
		}
	}
}

// The filter of Westwood+ twice, against the same in floats, and what a constant rate comes to.
func TestWestwoodFilter(t *testing.T) {
	k, r := newKernel(t), rand.New(rand.NewPCG(5, 6))
	sample, bandwidth := halves(k.call(mathTlFunctionTL_WESTWOOD_FILTER, 0, 0, 20_000))
	if sample != 20_000 || bandwidth != 20_000 {
		t.Errorf("the first rate of 20000 gives %d and %d", sample, bandwidth)
	}
	wantSample, want := 20_000.0, 20_000.0
	step := func(rate uint64) {
		sample, bandwidth = halves(k.call(mathTlFunctionTL_WESTWOOD_FILTER, sample, bandwidth, rate))
		wantSample = wantSample*7/8 + float64(rate)/8
		want = want*7/8 + wantSample/8
		// Each step rounds down by less than 1, of which 1/(1 - 7/8) = 8 add up; and those of the first filter go through the second.
		near(t, "the first filter", sample, wantSample-4, 4)
		near(t, "the bandwidth", bandwidth, want-8, 8)
	}
	for range 200 {
		step(10_000 + r.Uint64()%40_000)
	}
	for range 200 {
		step(30_000)
	}
	if bandwidth < 30_000-16 || bandwidth > 30_000 {
		t.Errorf("a rate of 30000 comes to %d", bandwidth)
	}
}

// ssthresh = BWE x RTTmin / segment size, at least 2; times in ticks, rounded up.
func TestWestwoodWindow(t *testing.T) {
	k, r := newKernel(t), rand.New(rand.NewPCG(9, 10))
	for range 200 {
		bandwidth, ticks, mss := r.Uint64()%5_000_000, 1+r.Uint64()%5000, 536+r.Uint64()%8500
		if got, want := k.call(mathTlFunctionTL_WESTWOOD_WINDOW, bandwidth, ticks, mss), max(parts(bandwidth, ticks, mss), 2); got != want {
			t.Errorf("%d bytes per tick for %d ticks in segments of %d: %d, want %d", bandwidth, ticks, mss, got, want)
		}
	}
	for _, c := range []struct{ us, tick, want uint64 }{{0, 4000, 0}, {1, 4000, 1}, {4000, 4000, 1}, {4001, 4000, 2}, {50_000, 4000, 13}, {50_000, 1000, 50}} {
		if got := k.call(mathTlFunctionTL_TICKS, c.us, c.tick); got != c.want {
			t.Errorf("%d us are %d ticks of %d us, want %d", c.us, got, c.tick, c.want)
		}
	}
}

// Whatever the order of ACKs, what is counted is what has arrived. The paper: a duplicate stands for a segment, and the ACK that
// covers it does not count it again.
func TestWestwoodCounts(t *testing.T) {
	const mss = 1448
	k := newKernel(t)
	for _, c := range []struct {
		name string
		acks []uint64 // segments that each acknowledges; 0: a duplicate
		want uint64   // segments
	}{
		{"in order", []uint64{1, 1, 1}, 3},
		{"delayed", []uint64{2, 2}, 4},
		{"one lost, three behind it", []uint64{0, 0, 0, 4}, 4},
		{"ten behind it", []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}, 11},
		{"covered by two", []uint64{0, 0, 0, 0, 3, 2}, 5 + 1}, // the first covers three of which all are known, and still counts for one
		{"more duplicates than arrived", []uint64{0, 0, 0, 2}, 4},
	} {
		var counted, dup uint64
		for _, segments := range c.acks {
			var bytes uint64
			dup, bytes = halves(k.call(mathTlFunctionTL_WESTWOOD_ACKNOWLEDGED, segments*mss, mss, dup))
			counted += bytes
		}
		if counted != c.want*mss {
			t.Errorf("%s: %d bytes, want %d", c.name, counted, c.want*mss)
		}
	}
}

// Hybla's paper: rho = RTT / 25 ms, at least 1; each ACK adds 2^rho - 1, then rho^2 / window.
func TestHybla(t *testing.T) {
	k := newKernel(t)
	for _, ms := range []float64{0, 1, 10, 25, 26, 40, 50, 99, 137, 200, 300, 399} {
		rho := k.call(mathTlFunctionTL_HYBLA_RHO, uint64(ms*8000))
		near(t, "rho", rho, 8*max(ms/25, 1), 1)
		near(t, "rho squared", k.call(mathTlFunctionTL_HYBLA_RHO2, rho), 128*math.Pow(float64(rho)/8, 2), 0)
		want := 128 * (math.Exp2(float64(rho)/8) - 1)
		near(t, "in slow start", k.call(mathTlFunctionTL_HYBLA_SLOW_START, rho), want, 1+want/90)
		for _, w := range windows()[:20] {
			near(t, "beyond", k.call(mathTlFunctionTL_HYBLA_AVOID, 2*rho*rho, w), 128*math.Pow(float64(rho)/8, 2)/float64(w), 1)
		}
	}
	if a, b := k.call(mathTlFunctionTL_HYBLA_SLOW_START, 16*8), k.call(mathTlFunctionTL_HYBLA_SLOW_START, 40*8); a != b {
		t.Errorf("with rho 40 an ACK adds %d/128, want %d as with 16", b, a)
	}
}

// RFC 3649: a(w) is the first row of its table that holds w, and a loss takes b(w).
func TestHighSpeed(t *testing.T) {
	k := newKernel(t)
	type row struct{ cwnd, less uint64 }
	var table []row
	for i := range uint64(73) {
		table = append(table, row{k.call(mathTlFunctionTL_HIGHSPEED_CWND, i), k.call(mathTlFunctionTL_HIGHSPEED_LESS, i)})
	}
	for _, w := range append(windows(), 221, 222, 8726, 8727, 89_053, 89_054) {
		want := 0
		for want < 72 && table[want].cwnd < w {
			want++
		}
		if got := k.call(mathTlFunctionTL_HIGHSPEED_ROW, w); got != uint64(want) {
			t.Errorf("%d packets are in row %d, want %d", w, got, want)
		}
		if got, left := k.call(mathTlFunctionTL_HIGHSPEED_LEFT, w, uint64(want)), max(w-parts(w, table[want].less, 256), 2); got != left {
			t.Errorf("of %d packets a loss leaves %d, want %d", w, got, left)
		}
	}
}
