// SPDX-License-Identifier: Apache-2.0

package mathtest

import (
	"math"
	"math/rand/v2"
	"testing"
)

// alpha jumps only after theta = 5 rounds with hardly a queue, and follows it at once: the Illinois paper, section 4.
func TestIllinoisTheta(t *testing.T) {
	const dm, high = 50_000, 1280
	k := newKernel(t)
	alpha, rounds := uint64(high), uint64(0)
	step := func(da uint64) uint64 {
		rounds, alpha = halves(k.call(mathTlFunctionTL_ILLINOIS_NEXT_ALPHA, alpha, da, dm, rounds))
		return alpha
	}
	if got := step(0); got != high {
		t.Errorf("no queue from the start: alpha is %d/128, want 10", got)
	}
	low := step(dm / 2)
	if want := k.call(mathTlFunctionTL_ILLINOIS_ALPHA, dm/2, dm); low != want {
		t.Errorf("half of the largest queue: alpha is %d/128, want %d", low, want)
	}
	for round := range 4 {
		if got := step(dm / 100); got != low {
			t.Errorf("round %d of a short queue: alpha is %d/128, want still %d", round+1, got, low)
		}
	}
	if got := step(dm / 100); got != high {
		t.Errorf("the fifth round of a short queue: alpha is %d/128, want 10", got)
	}
	if got := step(dm); got > 39 || got < 37 {
		t.Errorf("the largest queue: alpha is %d/128, want 0.3", got)
	}
}

// paths are round-trip times without and with a queue, in us.
func paths() [][2]uint64 {
	p := [][2]uint64{{1, 1}, {20_001, 20_001}, {20_000, 20_001}, {20_000, 22_500}, {20_000, 22_501}, {20_000, 40_000}, {50_000, 400_000}, {100, 2_000_000}}
	r := rand.New(rand.NewPCG(11, 12))
	for range 50 {
		base := 1 + r.Uint64()%300_000
		p = append(p, [2]uint64{base, base + r.Uint64()%500_000})
	}
	return p
}

// Vegas' paper: diff = (expected - actual) x base RTT = w (RTT - base) / base. Beyond beta = 4 one less, below alpha = 2 one
// more; slow start ends at what the path holds, w base / RTT, and one.
func TestVegas(t *testing.T) {
	k := newKernel(t)
	for _, p := range paths() {
		base, rtt := p[0], p[1]
		for _, w := range windows()[:20] {
			if got, want := k.call(mathTlFunctionTL_VEGAS_QUEUE, w, rtt, base), parts(w, rtt-base, base); want <= math.MaxUint32 && got != want {
				t.Errorf("a window of %d, %d us instead of %d: %d packets wait, want %d", w, rtt, base, got, want)
			}
			if got, want := k.call(mathTlFunctionTL_VEGAS_EXIT, w, rtt, base), min(w, parts(w, base, rtt)+1); got != want {
				t.Errorf("a window of %d, %d us instead of %d: slow start ends at %d, want %d", w, rtt, base, got, want)
			}
		}
	}
	for queue, want := range map[uint64]uint64{0: 101, 1: 101, 2: 100, 3: 100, 4: 100, 5: 99, 50: 99} {
		if got := k.call(mathTlFunctionTL_VEGAS_NEXT, 100, queue); got != want {
			t.Errorf("with %d packets waiting 100 becomes %d, want %d", queue, got, want)
		}
	}
}

// Veno's paper: N = w (RTT - base) / RTT. With fewer than beta = 3 a loss leaves 4/5, else 1/2.
func TestVeno(t *testing.T) {
	k := newKernel(t)
	for _, p := range paths() {
		for _, w := range windows()[:20] {
			near(t, "N in half packets", k.call(mathTlFunctionTL_VENO_QUEUE, w, p[1], p[0]), 2*float64(w)*float64(p[1]-p[0])/float64(p[1]), 1)
		}
	}
	for _, w := range windows() {
		for queue, want := range map[uint64]uint64{0: max(w*4/5, 2), 5: max(w*4/5, 2), 6: max(w/2, 2), 100: max(w/2, 2)} {
			if got := k.call(mathTlFunctionTL_VENO_LEFT, w, queue); got != want {
				t.Errorf("with %d half packets waiting a loss leaves %d of %d, want %d", queue, got, w, want)
			}
		}
	}
}

// YeAH's paper: Q = w (RTT - base) / RTT; long beyond 80 packets or 1/8 of the base; drained to not below half, nor Reno's.
func TestYeahQueue(t *testing.T) {
	k := newKernel(t)
	for _, p := range paths() {
		base, rtt := p[0], p[1]
		for _, w := range windows()[:20] {
			want := parts(w, rtt-base, rtt)
			if got := k.call(mathTlFunctionTL_YEAH_QUEUE, w, rtt, base); got != want {
				t.Errorf("a window of %d, %d us instead of %d: %d packets wait, want %d", w, rtt, base, got, want)
			}
			long := want > 80 || rtt-base > base/8
			if got := k.call(mathTlFunctionTL_YEAH_IS_LONG, want, rtt, base) != 0; got != long {
				t.Errorf("%d packets, %d us instead of %d is a long queue: %v, want %v", want, rtt, base, got, long)
			}
		}
	}
	for _, c := range []struct{ w, queue, reno, want uint64 }{
		{1000, 100, 2, 900}, {1000, 500, 2, 500}, {1000, 900, 2, 500}, {1000, 100, 950, 950}, {201, 150, 2, 101},
	} {
		if got := k.call(mathTlFunctionTL_YEAH_DRAINED, c.w, c.queue, c.reno); got != c.want {
			t.Errorf("a queue of %d leaves %d of %d where Reno has %d, want %d", c.queue, got, c.w, c.reno, c.want)
		}
	}
}

// A loss takes the queue, at least 1/8 and at most 1/2; after rho = 16 slow rounds 1/2.
func TestYeahDecrease(t *testing.T) {
	k := newKernel(t)
	for _, c := range []struct{ w, queue, slow, want uint64 }{
		{100, 0, 0, 88}, {100, 12, 0, 88}, {100, 13, 0, 87}, {100, 30, 15, 70}, {100, 50, 0, 50}, {100, 90, 0, 50},
		{100, 0, 16, 50}, {100, 30, 16, 50}, {100, 0, math.MaxUint32, 50},
		{3, 0, 0, 3}, {3, 1, 0, 2}, {2, 0, 16, 2}, {1, 0, 16, 2}, {80_000, 100, 0, 70_000},
	} {
		if got := k.call(mathTlFunctionTL_YEAH_LEFT, c.w, c.queue, c.slow); got != c.want {
			t.Errorf("of %d packets, %d of them queued, after %d slow rounds a loss leaves %d, want %d", c.w, c.queue, c.slow, got, c.want)
		}
	}
}

// H-TCP's paper: alpha = 2 (1 - beta) f(t), f = 1 up to a second and then 1 + 10 d + (d / 2)^2 with d beyond it, scaled by
// RTT / 100 ms, here bounded to 1/10 to 2. f is a whole number here, rounded down twice.
func TestHtcpAlpha(t *testing.T) {
	k := newKernel(t)
	for _, hz := range []float64{100, 250, 1000} {
		for _, seconds := range []float64{0, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 100} {
			for _, rtt := range []float64{0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3} {
				for _, beta := range []float64{64, 90, 102} {
					f := 1.0
					if d := seconds - 1; d > 0 {
						f += 10*d + d*d/4
					}
					scale, ticks := 1.0, math.Ceil(rtt*hz)
					if rtt > 0 {
						scale = min(max(ticks/hz/0.1, 0.1), 2)
					}
					one := 2 * (128 - beta) // of alpha, times 128
					got := k.call(mathTlFunctionTL_HTCP_ALPHA, uint64(seconds*hz), uint64(hz), uint64(ticks), uint64(beta))
					near(t, "alpha", got, max(f*scale, 1)*one, one*(1+scale)+f*scale*one/20)
				}
			}
		}
	}
}

// H-TCP's paper: beta = RTTmin / RTTmax from 0.5 to 0.8, if two losses came at rates within a fifth of each other.
func TestHtcpBeta(t *testing.T) {
	k := newKernel(t)
	for _, c := range [][2]uint64{{5, 5}, {5, 6}, {5, 7}, {13, 20}, {13, 26}, {13, 100}, {1, 1000}, {25, 31}} {
		near(t, "beta", k.call(mathTlFunctionTL_HTCP_BETA, c[0], c[1]), 128*min(max(float64(c[0])/float64(c[1]), 0.5), 0.8), 1)
	}
	for _, c := range []struct{ now, before, steady uint64 }{
		{1000, 1000, 1}, {800, 1000, 1}, {799, 1000, 0}, {1200, 1000, 1}, {1201, 1000, 0}, {0, 1000, 0}, {1000, 0, 0},
		{math.MaxUint32, math.MaxUint32, 1}, {math.MaxUint32 / 2, math.MaxUint32, 0},
	} {
		if got := k.call(mathTlFunctionTL_HTCP_IS_STEADY, c.now, c.before); got != c.steady {
			t.Errorf("%d packets/s after %d is steady: %d, want %d", c.now, c.before, got, c.steady)
		}
	}
}

// LP's paper: smoothed with the weight 1/8, and a sign of others at 15 % of the span above the least.
func TestLp(t *testing.T) {
	k := newKernel(t)
	k.call(mathTlFunctionTL_LP_RESET)
	smoothed := 0.0
	for i, owd := range []uint64{1100, 1000, 1050, 1010, 1190, 1200, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000} {
		if i == 0 {
			smoothed = 8 * float64(owd)
		} else {
			smoothed = smoothed*7/8 + float64(owd)
		}
		got, _ := halves(k.call(mathTlFunctionTL_LP_SAMPLE, owd))
		near(t, "the smoothed delay times 8", got, smoothed+4, 4)
		// The largest but one of the delays above: a new largest is kept for the time when another one goes beyond it.
		largest := map[bool]float64{true: 1100, false: 1190}[i < 5]
		queued := smoothed/8 > 1000+0.15*(largest-1000)
		if i > 0 && math.Abs(smoothed/8-1000-0.15*(largest-1000)) > 2 && (k.call(mathTlFunctionTL_LP_IS_QUEUED) != 0) != queued {
			t.Errorf("delay %d, smoothed to %.1f of 1000 to %.0f: someone else is seen: %v", owd, smoothed/8, largest, !queued)
		}
	}
	if _, largest := halves(k.call(mathTlFunctionTL_LP_SAMPLE, 1195)); largest != 1195 {
		t.Errorf("the largest delay is %d, want 1195", largest)
	}
	smooth, _ := halves(k.call(mathTlFunctionTL_LP_SAMPLE, 1000))
	if least, largest := halves(k.call(mathTlFunctionTL_LP_BEGIN_ANEW)); least != smooth/8 || largest != smooth/4 {
		t.Errorf("anew from %d to %d, want from the smoothed delay %d to twice it", least, largest, smooth/8)
	}
	if k.call(mathTlFunctionTL_LP_IS_QUEUED) != 0 {
		t.Error("someone else is seen just after it began anew")
	}
}

// The peer's clock, by 63/64 of what was known. An honest clock of 1000 ticks never counts as a faster one.
func TestLpClock(t *testing.T) {
	k, r := newKernel(t), rand.New(rand.NewPCG(13, 14))
	if got := k.call(mathTlFunctionTL_LP_HZ, 0, 25, 100); got != 250 {
		t.Errorf("25 ticks in 100 ms are %d a second", got)
	}
	hz, want := uint64(1000), 1000.0
	for range 300 {
		local := 1 + r.Uint64()%50
		remote := max(local+r.Uint64()%3, 2) - 1 // a tick more or less
		hz = k.call(mathTlFunctionTL_LP_HZ, hz, remote, local)
		want = (want*63 + float64(1000*remote/local)) / 64
		near(t, "ticks a second", hz, want-32, 32)
		want = float64(hz) // what is rounded off adds up, on purpose
	}
	for range 200 {
		hz = k.call(mathTlFunctionTL_LP_HZ, hz, 1000, 1000)
	}
	if hz > 1000 {
		t.Errorf("a clock of 1000 ticks counts as %d", hz)
	}
}
