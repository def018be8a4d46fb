// SPDX-License-Identifier: Apache-2.0

package mathtest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/trunkline/trunkline/internal/testkit"
)

// kernel calls the functions in the kernel.
type kernel struct {
	t    *testing.T
	objs mathObjects
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	testkit.NeedRoot(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	k := &kernel{t: t}
	if err := loadMathObjects(&k.objs, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.objs.Close() })
	return k
}

func (k *kernel) call(f mathTlFunction, args ...uint64) uint64 {
	k.t.Helper()
	vars := []*ebpf.Variable{k.objs.TlA, k.objs.TlB, k.objs.TlC, k.objs.TlD}
	err := k.objs.TlWhich.Set(uint32(f))
	for i, a := range args {
		if err == nil {
			err = vars[i].Set(a)
		}
	}
	if err == nil {
		_, err = k.objs.TlMath.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	}
	var result uint64
	if err == nil {
		err = k.objs.TlResult.Get(&result)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	return result
}

func near(t *testing.T, what string, got uint64, want, tolerance float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > tolerance {
		t.Errorf("%s: got %d, want %.2f", what, got, want)
	}
}

func TestCubeRoot(t *testing.T) {
	k, r := newKernel(t), rand.New(rand.NewPCG(1, 2))
	cases := []uint64{0, 1, 7, 8, 9, 26, 27, 63, 64, math.MaxUint64, math.MaxUint64 - 1, 2642245 * 2642245 * 2642245, 2642245*2642245*2642245 - 1}
	for bit := range 64 {
		cases = append(cases, 1<<bit, 1<<bit-1, 1<<bit|r.Uint64()>>(63-bit))
	}
	for range 2000 {
		n := uint64(r.IntN(2642245) + 1)
		cases = append(cases, n*n*n, n*n*n-1, n*n*n+1, r.Uint64()>>r.IntN(64))
	}
	for _, x := range cases {
		got := new(big.Int).SetUint64(k.call(mathTlFunctionTL_CBRT, x))
		above := new(big.Int).Add(got, big.NewInt(1))
		three, want := big.NewInt(3), new(big.Int).SetUint64(x)
		if new(big.Int).Exp(got, three, nil).Cmp(want) > 0 || new(big.Int).Exp(above, three, nil).Cmp(want) <= 0 {
			t.Fatalf("the cube root of %d is not %s", x, got)
		}
	}
}

// W(t) = 0.4 (t - K)^3 + W_max, K = cbrt(distance / 0.4): RFC 9438, figures 1 and 2.
func TestCubicCurve(t *testing.T) {
	k := newKernel(t)
	for _, distance := range []uint64{0, 1, 2, 3, 10, 30, 100, 1000, 12000, 1 << 20, 1<<32 - 1} {
		got := k.call(mathTlFunctionTL_CUBIC_K, distance)
		near(t, "K", got, 1024*math.Cbrt(float64(distance)/0.4), 1.01)
		if distance < 1<<20 {
			near(t, "the curve after K", k.call(mathTlFunctionTL_CUBIC_DELTA, got), float64(distance), 1+float64(distance)/100)
		}
	}
	for _, ms := range []uint64{0, 1, 100, 1000, 5000, 60_000, 1_000_000} {
		time := ms * 1024 / 1000
		near(t, "delta", k.call(mathTlFunctionTL_CUBIC_DELTA, time), 0.4*math.Pow(float64(time)/1024, 3), 1)
	}
	if a, b := k.call(mathTlFunctionTL_CUBIC_DELTA, 1<<20), k.call(mathTlFunctionTL_CUBIC_DELTA, math.MaxUint64); a != b {
		t.Errorf("beyond the bound the curve goes on from %d to %d", a, b)
	}
}

// alpha = k1 / (k2 + da) from 10 at d1 to 0.3 at dm, and beta from 1/8 at d2 to 1/2 at d3: the Illinois paper, equations 4 to 7.
func TestIllinois(t *testing.T) {
	const alphaMin, alphaMax = 38.0 / 128, 10.0
	k := newKernel(t)
	for _, dm := range []uint64{1_000, 12_345, 50_000, 400_000, 4_000_000} {
		d1, d2, d3 := float64(dm)/100, float64(dm)/10, 0.8*float64(dm)
		k1 := (float64(dm) - d1) * alphaMin * alphaMax / (alphaMax - alphaMin)
		k2 := (float64(dm)-d1)*alphaMin/(alphaMax-alphaMin) - d1
		for part := uint64(2); part <= 100; part++ {
			da := dm * part / 100
			near(t, "alpha", k.call(mathTlFunctionTL_ILLINOIS_ALPHA, da, dm), 128*k1/(k2+float64(da)), 128*0.02)
			beta := 1.0/8 + (1.0/2-1.0/8)*(float64(da)-d2)/(d3-d2)
			near(t, "beta", k.call(mathTlFunctionTL_ILLINOIS_BETA, da, dm), 64*min(max(beta, 1.0/8), 1.0/2), 1.01)
		}
	}
	if got := k.call(mathTlFunctionTL_ILLINOIS_BETA, 0, 0); got != 8 {
		t.Errorf("beta without any queue is %d/64, want 8/64", got)
	}
}

func TestFilter(t *testing.T) {
	k, want, got := newKernel(t), 1e6, uint64(1e6)
	for i := range 100 {
		sample := uint64(3e6 + i%7*1e5)
		got, want = k.call(mathTlFunctionTL_FILTER8, got, sample), want*7/8+float64(sample)/8
		near(t, "filter", got, want, 8)
	}
	if got := k.call(mathTlFunctionTL_FILTER8, math.MaxUint32, math.MaxUint32); got != math.MaxUint32 {
		t.Errorf("the largest value becomes %d", got)
	}
}

// The BIC paper's increase: by the search, at most 16 packets a round trip, slowest at the maximum.
func TestBic(t *testing.T) {
	k := newKernel(t)
	for _, c := range []struct {
		name             string
		cwnd, max, count uint64
	}{
		{"as Reno at a low window", 14, 100, 14},
		{"the largest step", 100, 1000, 100 / 16},
		{"a quarter of the distance", 960, 1000, 960 / 10},
		{"close below", 998, 1000, 998 * 20 / 4},
		{"at the maximum", 1000, 1000, 1000 * 20 / 4},
		{"just beyond", 1010, 1000, 1010 * 3 / 10},
		{"far beyond", 1200, 1000, 1200 / 16},
		{"no loss yet", 100, 0, 100 / 16},
	} {
		if got := k.call(mathTlFunctionTL_BIC_COUNT, c.cwnd, c.max); got != c.count {
			t.Errorf("%s: %d packets for one, want %d", c.name, got, c.count)
		}
	}
}

func TestWide(t *testing.T) {
	k, r := newKernel(t), rand.New(rand.NewPCG(3, 4))
	for range 200 {
		a, b, c := r.Uint32(), r.Uint32(), r.Uint32()>>r.IntN(32)
		want := uint64(0)
		if c != 0 {
			want = uint64(a) * uint64(b) / uint64(c)
		}
		if got := k.call(mathTlFunctionTL_MUL_DIV, uint64(a), uint64(b), uint64(c)); got != want {
			t.Errorf("%d * %d / %d is %d, want %d", a, b, c, got, want)
		}
	}
	for _, c := range []struct{ a, b, after uint64 }{{2, 1, 1}, {1, 2, 0}, {1, 1, 0}, {0, math.MaxUint32, 1}, {math.MaxUint32, 0, 0}} {
		if got := k.call(mathTlFunctionTL_AFTER, c.a, c.b); got != c.after {
			t.Errorf("%d after %d: %d", c.a, c.b, got)
		}
	}
}

// RFC 3649, section 5: b(w) in a line over log w, and a(w) from it and the response function w = 0.12 / p^0.835.
func TestHighSpeedTable(t *testing.T) {
	k := newKernel(t)
	part := func(w float64) float64 { return math.Log(w/38) / math.Log(83000.0/38) }
	b := func(w float64) float64 { return 0.5 - 0.4*part(w) }
	a := func(w float64) float64 {
		p := 0.078 / math.Pow(w, 1.2)
		return w * w * p * 2 * b(w) / (2 - b(w))
	}
	for row := range uint64(73) {
		w := float64(k.call(mathTlFunctionTL_HIGHSPEED_CWND, row))
		if got := float64(k.call(mathTlFunctionTL_HIGHSPEED_LESS, row)); got != math.Floor(256*b(w)) {
			t.Errorf("row %d: a loss takes %.0f/256, want %.2f", row, got, 256*b(w))
		}
		if grown := float64(row + 1); math.Abs(a(w)-grown) > 0.05+grown/1000 && row > 0 {
			t.Errorf("row %d: at %.0f packets the RFC adds %.3f, the table %.0f", row, w, a(w), grown)
		}
	}
}
