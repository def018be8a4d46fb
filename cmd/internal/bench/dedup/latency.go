// SPDX-License-Identifier: Apache-2.0

package dedup

import "github.com/trunkline/trunkline/cmd/internal/bench"

// The paper's path: server, LAN, proxy, WAN, proxy, LAN, client. Rates in Mbit/s.
const lanMbps = 1000

var wansMbps = []float64{10, 100, 1000}

// stages are the times in seconds that a file takes in each part of the path.
type stages struct{ lan, encode, wan, decode float64 }

// sequential is the paper's latency: each part waits for the whole file.
func (s stages) sequential() float64 { return s.lan + s.encode + s.wan + s.decode + s.lan }

// pipelined is the latency of an engine that streams: of many blocks, the slowest part decides.
func (s stages) pipelined() float64 { return max(s.lan, s.encode, s.wan, s.decode) }

func transferS(bytes, mbps float64) float64 { return bytes * 8 / (mbps * 1e6) }

// direct is the path without proxies.
func direct(raw, wan float64) stages {
	return stages{lan: transferS(raw, lanMbps), wan: transferS(raw, wan)}
}

func (f *found) stages(wan float64) stages {
	return stages{lan: transferS(float64(f.raw), lanMbps), encode: f.encodeS(), wan: transferS(f.wireBytes(), wan), decode: f.decodeS()}
}

// latency is the mean over files.
type latency struct {
	files                 int
	sequential, pipelined float64 // s
	savedBandwidth        float64 // shares
	savedLatency          float64
	savedPipelined        float64
}

func (e *experiment) latencyOf(k key, wan float64) (l latency) {
	for _, file := range e.files {
		k.file = file.name
		f := e.seen[k]
		if f == nil {
			continue
		}
		with, without := f.stages(wan), direct(float64(f.raw), wan)
		l.files++
		l.sequential += with.sequential()
		l.pipelined += with.pipelined()
		l.savedBandwidth += 1 - f.wireBytes()/float64(f.raw)
		l.savedLatency += 1 - with.sequential()/without.sequential()
		l.savedPipelined += 1 - with.pipelined()/without.pipelined()
	}
	if n := float64(l.files); n > 0 {
		l = latency{l.files, l.sequential / n, l.pipelined / n, l.savedBandwidth / n, l.savedLatency / n, l.savedPipelined / n}
	}
	return l
}

// latencyWithout is the mean over files without proxies.
func (e *experiment) latencyWithout(wan float64) (l latency) {
	for _, f := range e.files {
		s := direct(float64(len(f.data)), wan)
		l.sequential += s.sequential() / float64(len(e.files))
		l.pipelined += s.pipelined() / float64(len(e.files))
	}
	l.files = len(e.files)
	return l
}

// method is a line of the table of latencies.
type method struct {
	name string
	row  latencyRow
	key  key
}

// methods are those whose latency is told: nothing, compressors, and every codec's first and second send.
func (e *experiment) methods() []method {
	list := []method{{name: "none", row: latencyRow{Codec: "none"}}}
	for _, c := range compressors {
		if c.level != 1 {
			k := key{part: partWhole, codec: c.codec, level: c.level, pass: "first"}
			list = append(list, method{c.name(), latencyRow{Codec: c.codec, Level: c.level, Pass: "first"}, k})
		}
	}
	for _, s := range e.specs {
		for _, pass := range []string{"first", "second", "mod5"} {
			k := e.passKey(s, e.cuts[0], pass)
			list = append(list, method{s.String() + ", " + pass, latencyRow{Codec: k.codec, Stage: k.stage, Pass: pass}, k})
		}
	}
	return list
}

func (e *experiment) latencyRows() (rows []latencyRow) {
	for _, m := range e.methods() {
		for _, wan := range wansMbps {
			r, l := m.row, latency{}
			if m.name == "none" {
				l = e.latencyWithout(wan)
			} else {
				l = e.latencyOf(m.key, wan)
			}
			if l.files == 0 {
				continue
			}
			r.Part, r.name, r.WAN, r.Files = "latency", m.name, wan, l.files
			r.Latency, r.Pipelined = bench.Significant(l.sequential, 4), bench.Significant(l.pipelined, 4)
			r.SavedBandwidth, r.SavedLatency = bench.Significant(l.savedBandwidth, 6), bench.Significant(l.savedLatency, 4)
			r.SavedPipelined = bench.Significant(l.savedPipelined, 4)
			rows = append(rows, r)
		}
	}
	return rows
}
