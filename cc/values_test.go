// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/trunkline/trunkline/cc/insides"
)

// Every value that the catalogue promises is in the algorithm's state, under a name with its unit.
func TestShown(t *testing.T) {
	for _, a := range catalogue {
		d, err := describe(a)
		if err != nil || (len(d.shown) == 0) != (a.Name == "tl_reno") || (d.layout == 0) != (a.Name == "tl_reno") {
			t.Errorf("%s shows %+v: %v", a.Name, d, err)
		}
	}
}

// A state that says it is laid out otherwise is not read, nor one that says nothing.
func TestOtherLayout(t *testing.T) {
	state := make([]byte, 104)
	for _, a := range catalogue[1:] {
		d, err := describe(a)
		if err != nil {
			t.Fatal(err)
		}
		for _, layout := range []uint32{0, d.layout, d.layout + 1} {
			binary.LittleEndian.PutUint32(state[signAt:], layout)
			values, err := Values(a.Name, state)
			if err != nil || (values != nil) != (layout == d.layout) {
				t.Errorf("%s, laid out as %#x where %#x is known: %v, %v", a.Name, layout, d.layout, values, err)
			}
		}
	}
	base := map[string]field{"a": {"a", 0, 4, 1}, "b": {"b", 4, 4, 1}}
	for _, other := range []map[string]field{
		{"a": {"a", 4, 4, 1}, "b": {"b", 0, 4, 1}}, {"a": {"a", 0, 4, 1}, "c": {"c", 4, 4, 1}}, {"a": {"a", 0, 4, 1}, "b": {"b", 4, 8, 1}},
	} {
		if layoutOf(base) == layoutOf(other) {
			t.Errorf("%v counts as laid out as %v", other, base)
		}
	}
}

// Fixed point and ticks come out as what they mean.
func TestScaled(t *testing.T) {
	for name, want := range map[string]field{
		"alpha_x128":       {name: "alpha", factor: 1.0 / 128},
		"rtt_min_us_x8":    {name: "rtt_min_us", factor: 1.0 / 8},
		"bandwidth_Bptick": {name: "bandwidth_Bps", factor: 250},
		"rtt_min_ticks":    {name: "rtt_min_us", factor: 4000},
		"k_1024ths":        {name: "k_s", factor: 1.0 / 1024},
		"max_cwnd":         {name: "max_cwnd", factor: 1},
	} {
		if got := scaled(field{name: name, factor: 1}, 4000); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// What the kernel keeps of live flows makes sense on a path that is known.
func TestInsides(t *testing.T) {
	h := newHost(t, modes(t)[0])
	p := newPath(t, lossy)
	reader, err := insides.Open(true)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	between := map[string][2]float64{ // lossy carries 5 MB/s at 20 ms or more, 68 packets
		"alpha": {0.25, 40}, "beta": {0.12, 0.81}, "queue_us": {0, 300e3}, "base_rtt_us": {19e3, 500e3}, "max_rtt_us": {19e3, 2e6},
		"rtt_min_us": {19e3, 2e6}, "rtt_max_us": {19e3, 2e6}, "bandwidth_Bps": {0, 10e6}, "rho": {1, 80},
	}
	for _, a := range catalogue {
		t.Run(a.Name, func(t *testing.T) {
			h.t = t
			h.register(a.Name)
			other, f := p.dial(t, "reno"), p.dial(t, a.Name)
			defer other.Close()
			var sockets []insides.Socket
			err := f.send(traffic/2, func() {
				if err := p.A.Do(func() error { sockets, err = reader.Read(); return err }); err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Error(err)
			}
			i := slices.IndexFunc(sockets, func(s insides.Socket) bool { return s.Name == a.Name })
			if i < 0 || slices.ContainsFunc(sockets, func(s insides.Socket) bool { return s.Name == "reno" }) {
				t.Fatalf("sockets %+v, want one with %s and none of the kernel's", sockets, a.Name)
			}
			values, err := Values(a.Name, sockets[i].State)
			if err != nil || sockets[i].Cwnd == 0 || (len(values) == 0) != (a.shows == "") {
				t.Errorf("%+v, %+v, %v", sockets[i], values, err)
			}
			for name, v := range values {
				if b, ok := between[name]; ok && (v < b[0] || v > b[1]) {
					t.Errorf("%s is %g, want %g to %g", name, v, b[0], b[1])
				}
			}
			t.Log(values)
		})
	}
}

func TestList(t *testing.T) {
	h, p := newHost(t, modes(t)[0]), newPath(t, lossy)
	h.register("tl_reno")
	p.dial(t, "tl_reno")
	p.dial(t, "tl_reno")
	p.dial(t, "reno")
	var list []Entry
	if err := p.A.Do(func() (err error) { list, err = List(); return err }); err != nil {
		t.Fatal(err)
	}
	for i, a := range catalogue {
		flows := map[string]int{"tl_reno": 2}[a.Name]
		if e := list[i]; e.Name != a.Name || e.Source != Ours || e.Loaded != (flows > 0) || e.Loaded == (e.How != "") ||
			e.Flows == nil || *e.Flows != flows {
			t.Errorf("%+v", e)
		}
	}
	i := slices.IndexFunc(list, func(e Entry) bool { return e.Name == "reno" })
	if i < len(catalogue) || list[i].Source != BuiltIn || !list[i].Loaded || list[i].Reacts != Loss || *list[i].Flows != 1 {
		t.Errorf("the kernel's reno: %+v", list)
	}
}
