// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Values reads an algorithm's own state of a flow as the object describes it: by name with the unit, scaled to it. It is nil
// for algorithms that are not trunkline's, and for a state that is laid out otherwise: that of a flow which began under
// another version of trunkline, and of a socket that is not connected yet.
func Values(name string, state []byte) (map[string]float64, error) {
	a, ok := Lookup(name)
	if !ok {
		return nil, nil
	}
	d, err := describe(a)
	if err != nil || len(state) < signAt+4 || binary.LittleEndian.Uint32(state[signAt:]) != d.layout {
		return nil, err
	}
	values := map[string]float64{}
	for _, f := range d.shown {
		raw := make([]byte, 8)
		copy(raw, state[f.offset:f.offset+f.size])
		if v := binary.LittleEndian.Uint64(raw); v != none {
			values[f.name] = float64(v) * f.factor
		}
	}
	return values, nil
}

// none is what stands for a round-trip time while there is none; it is left out.
const none = 0x7fffffff

// signAt is where a state says how it is laid out (TL_SIGN in algorithm/cc.h).
const signAt = 100

// description is what is known of an algorithm's state.
type description struct {
	layout uint32  // made from the names and places of all its fields; 0: it has no state
	shown  []field // in the order of the algorithm's line in the catalogue
}

// field is a number in an algorithm's state.
type field struct {
	name         string // with the unit
	offset, size int
	factor       float64
}

var (
	describedMu sync.Mutex // guards described
	described   = map[string]description{}
)

// describe reads what an algorithm's object says of its state.
func describe(a Algorithm) (description, error) {
	describedMu.Lock()
	defer describedMu.Unlock()
	if d, ok := described[a.Name]; ok || a.shows == "" {
		return d, nil
	}
	spec, err := a.load()
	if err != nil {
		return description{}, fmt.Errorf("reading %s: %w", a.Name, err)
	}
	found, err := fieldsOf(a, spec)
	if err != nil {
		return description{}, err
	}
	tick, err := tickMicroseconds()
	if err != nil {
		return description{}, err
	}
	d := description{layout: layoutOf(found)}
	for _, shown := range strings.Fields(a.shows) {
		f, ok := found[shown]
		if !ok {
			return description{}, fmt.Errorf("the state of %s has no %s", a.Name, shown)
		}
		d.shown = append(d.shown, scaled(f, float64(tick)))
	}
	described[a.Name] = d
	return d, nil
}

// fieldsOf returns the numbers of an algorithm's state by name.
func fieldsOf(a Algorithm, spec *ebpf.CollectionSpec) (map[string]field, error) {
	var state *btf.Struct
	if err := spec.Types.TypeByName(a.Name, &state); err != nil {
		return nil, fmt.Errorf("looking for the state of %s: %w", a.Name, err)
	}
	found := map[string]field{}
	if err := collect(state, 0, found); err != nil {
		return nil, fmt.Errorf("the state of %s: %w", a.Name, err)
	}
	return found, nil
}

// layoutOf makes a number that is another one if a field has another name, place or size. It is never 0.
func layoutOf(fields map[string]field) uint32 {
	h := fnv.New32a()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(h, "%s %d %d\n", name, fields[name].offset, fields[name].size)
	}
	return max(h.Sum32(), 1)
}

// setLayout has an algorithm write into each flow's state how that is laid out.
func setLayout(a Algorithm, spec *ebpf.CollectionSpec) error {
	v := spec.Variables["tl_layout"]
	if v == nil { // it has no state
		return nil
	}
	found, err := fieldsOf(a, spec)
	if err != nil {
		return err
	}
	return v.Set(layoutOf(found))
}

// collect gathers the numbers of a state and of the parts within it.
func collect(s *btf.Struct, at uint32, into map[string]field) error {
	for _, m := range s.Members {
		offset := at + m.Offset.Bytes()
		if inner, ok := btf.As[*btf.Struct](m.Type); ok {
			if err := collect(inner, offset, into); err != nil {
				return err
			}
			continue
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil || !slices.Contains([]int{1, 2, 4, 8}, size) || m.BitfieldSize != 0 {
			return fmt.Errorf("%s is no plain number: %v", m.Name, err)
		}
		into[m.Name] = field{m.Name, int(offset), size, 1}
	}
	return nil
}

var fixedPoint = regexp.MustCompile(`_x([0-9]+)$`)

// scaled turns fixed point and ticks of the clock into what people read; the unit in the name follows.
func scaled(f field, tickUs float64) field {
	if m := fixedPoint.FindStringSubmatch(f.name); m != nil {
		n, _ := strconv.ParseFloat(m[1], 64)
		f.name, f.factor = strings.TrimSuffix(f.name, m[0]), 1/n
	}
	switch {
	case strings.HasSuffix(f.name, "_Bptick"):
		f.name, f.factor = strings.TrimSuffix(f.name, "_Bptick")+"_Bps", f.factor*1e6/tickUs
	case strings.HasSuffix(f.name, "_ticks"):
		f.name, f.factor = strings.TrimSuffix(f.name, "_ticks")+"_us", f.factor*tickUs
	case strings.HasSuffix(f.name, "_1024ths"):
		f.name, f.factor = strings.TrimSuffix(f.name, "_1024ths")+"_s", f.factor/1024
	}
	return f
}
