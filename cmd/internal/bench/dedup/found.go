// SPDX-License-Identifier: Apache-2.0

package dedup

import "github.com/trunkline/trunkline/cmd/internal/bench"

// The parts of the result.
const (
	partPass   = "pass"   // the paper's experiments and byte-shift
	partEffort = "effort" // first sends with each amount of work
	partLink   = "link"   // first sends over a slow link
	partWhole  = "whole"  // compressors, for comparison
)

// key says what a figure is of; what it does not depend on is left out.
type key struct {
	part, file, codec, stage, cut, pass, effort string
	level                                       int
}

// found is what the runs of one key gave.
type found struct {
	passed           // of the last run: bytes are the same in each, but over a link, where they depend on times
	encodes, decodes []float64
	wires, links     []float64
}

func (f *found) add(p passed) {
	f.passed = p
	f.encodes = append(f.encodes, speedMBps(p.raw, p.encode))
	f.decodes = append(f.decodes, speedMBps(p.raw, p.decode))
	f.wires = append(f.wires, float64(p.wire))
	f.links = append(f.links, p.link.Seconds())
}

func (f *found) encodeMBps() bench.Spread { return bench.Of(f.encodes) }
func (f *found) decodeMBps() bench.Spread { return bench.Of(f.decodes) }

// wireBytes is the median.
func (f *found) wireBytes() float64 { return bench.Of(f.wires).Median }

func (f *found) ratio() float64 { return float64(f.raw) / f.wireBytes() }

// encodeS and decodeS are the medians as times.
func (f *found) encodeS() float64 { return float64(f.raw) / 1e6 / max(f.encodeMBps().Median, 1e-9) }
func (f *found) decodeS() float64 { return float64(f.raw) / 1e6 / max(f.decodeMBps().Median, 1e-9) }

// mean is what all files together gave.
type mean struct {
	files          int
	ratio          float64 // arithmetic, as in the paper
	least          float64 // the lowest ratio
	raw, wire      float64 // bytes
	encode, decode float64 // MB/s, of all bytes together
	blocks         int
	linkS          float64
}

// meanOf sums up the files that have a figure; files is 0 if none has.
func (e *experiment) meanOf(k key) (m mean) {
	encodeS, decodeS := 0.0, 0.0
	for _, file := range e.files {
		k.file = file.name
		f := e.seen[k]
		if f == nil {
			continue
		}
		r := f.ratio()
		if m.files == 0 || r < m.least {
			m.least = r
		}
		m.files++
		m.ratio += r
		m.raw += float64(f.raw)
		m.wire += f.wireBytes()
		m.blocks += f.blocks
		m.linkS += bench.Of(f.links).Median
		encodeS += f.encodeS()
		decodeS += f.decodeS()
	}
	if m.files > 0 {
		m.ratio /= float64(m.files)
		m.encode, m.decode = m.raw/1e6/encodeS, m.raw/1e6/decodeS
	}
	return m
}
