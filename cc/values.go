// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// Values reads an algorithm's own state of a flow as the object describes it: by name with the unit, scaled to it. It is nil
// for algorithms that are not trunkline's, and for what is too short. A flow that outlived another version of trunkline may
// have a state of another shape; its values then mean nothing.
func Values(name string, state []byte) (map[string]float64, error) {
	a, ok := Lookup(name)
	if !ok {
		return nil, nil
	}
	fields, err := fieldsOf(a)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, f := range fields {
		raw := make([]byte, 8)
		if f.offset+f.size > len(state) {
			return nil, nil
		}
		copy(raw, state[f.offset:f.offset+f.size])
		if v := binary.LittleEndian.Uint64(raw); v != none {
			values[f.name] = float64(v) * f.factor
		}
	}
	return values, nil
}

// none is what stands for a round-trip time while there is none; it is left out.
const none = 0x7fffffff

// field is a number in an algorithm's state.
type field struct {
	name         string // with the unit
	offset, size int
	factor       float64
}

var (
	fieldsMu    sync.Mutex // guards fieldsCache
	fieldsCache = map[string][]field{}
)

// fieldsOf returns the fields that an algorithm shows, in the order of its line in the catalogue.
func fieldsOf(a Algorithm) ([]field, error) {
	fieldsMu.Lock()
	defer fieldsMu.Unlock()
	if f, ok := fieldsCache[a.Name]; ok || a.shows == "" {
		return f, nil
	}
	spec, err := a.load()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", a.Name, err)
	}
	var state *btf.Struct
	if err := spec.Types.TypeByName(a.Name, &state); err != nil {
		return nil, fmt.Errorf("looking for the state of %s: %w", a.Name, err)
	}
	found := map[string]field{}
	if err := collect(state, 0, found); err != nil {
		return nil, fmt.Errorf("the state of %s: %w", a.Name, err)
	}
	tick, err := tickMicroseconds()
	if err != nil {
		return nil, err
	}
	var fields []field
	for _, shown := range strings.Fields(a.shows) {
		f, ok := found[shown]
		if !ok {
			return nil, fmt.Errorf("the state of %s has no %s", a.Name, shown)
		}
		fields = append(fields, scaled(f, float64(tick)))
	}
	fieldsCache[a.Name] = fields
	return fields, nil
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
