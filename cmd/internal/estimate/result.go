// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"slices"
	"strings"
)

// Result is what an estimate found.
type Result struct {
	Codec        string    `json:"codec"`
	HistoryBytes int64     `json:"history_bytes"`
	Files        []File    `json:"files"` // the largest
	FileCount    int       `json:"file_count"`
	Empty        int       `json:"empty_files"`
	Captures     []Capture `json:"captures"`
	Ports        []Port    `json:"ports"`
	Flows        []Flow    `json:"flows"` // the largest
	FlowCount    int       `json:"flow_count"`
	Total        Sums      `json:"total"`
	// EncryptedBytes are raw bytes of files and flows that are encrypted: nothing can be saved of them.
	EncryptedBytes uint64 `json:"encrypted_bytes"`
	Conclusion     string `json:"conclusion"`

	ports map[portKey]*Port
}

// File is one file.
type File struct {
	Path string `json:"path"`
	Sums
	Reason string `json:"reason,omitempty"` // why it gains nothing
}

// Flow is one connection of a capture.
type Flow struct {
	Client   string `json:"client"`
	Server   string `json:"server"`
	Protocol string `json:"protocol,omitempty"` // TLS or SSH, where recognised
	Sums
	GapBytes uint64 `json:"gap_bytes"` // that the capture lacks
	Reason   string `json:"reason,omitempty"`
}

// Port is all connections to a port of servers that carried the same.
type Port struct {
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol,omitempty"`
	Flows    int    `json:"flows"`
	Sums
}

type portKey struct {
	port     uint16
	protocol string
}

// mostListed files and flows are kept; there may be millions.
const mostListed = 1000

func (r *Result) addFile(f File) {
	r.FileCount++
	r.Total.add(f.Sums)
	if f.Reason == encrypted {
		r.EncryptedBytes += f.RawBytes
	}
	r.Files = append(r.Files, f)
	if len(r.Files) >= 2*mostListed {
		r.Files = largest(r.Files, mostListed, func(f File) uint64 { return f.RawBytes })
	}
}

// encrypted is the name of the reason.
const encrypted = "encrypted"

func (r *Result) addFlow(f Flow, port uint16) {
	r.FlowCount++
	r.Total.add(f.Sums)
	if f.Protocol != "" || f.Reason == encrypted {
		r.EncryptedBytes += f.RawBytes
	}
	key := portKey{port, f.Protocol}
	p := r.ports[key]
	if p == nil {
		if r.ports == nil {
			r.ports = map[portKey]*Port{}
		}
		p = &Port{Port: port, Protocol: f.Protocol}
		r.ports[key] = p
	}
	p.Flows++
	p.Sums.add(f.Sums)
	r.Flows = append(r.Flows, f)
	if len(r.Flows) >= 2*mostListed {
		r.Flows = largest(r.Flows, mostListed, func(f Flow) uint64 { return f.RawBytes })
	}
}

// largest leaves the first n by size, equal ones in the order that they have.
func largest[T any](list []T, n int, size func(T) uint64) []T {
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(size(b), size(a)) })
	return slices.Clip(list[:min(n, len(list))])
}

// finish puts everything in order, and draws the conclusion.
func (r *Result) finish() {
	r.Total.finish()
	for _, p := range r.ports {
		r.Ports = append(r.Ports, *p)
	}
	slices.SortFunc(r.Ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol, b.Protocol))
	})
	slices.SortFunc(r.Flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), strings.Compare(a.Client, b.Client))
	})
	r.Flows = r.Flows[:min(len(r.Flows), mostListed)]
	r.Conclusion = r.conclude()
}
