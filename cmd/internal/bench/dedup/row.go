// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// The rows of the JSON. A part that a row does not speak of is left out.
type (
	// fileRow is one file, carried in one way.
	fileRow struct {
		Part      string  `json:"part"`
		File      string  `json:"file"`
		Codec     string  `json:"codec"`
		Stage     string  `json:"stage"`
		Level     int     `json:"level,omitempty"`
		Pass      string  `json:"pass,omitempty"`
		Cut       string  `json:"cut,omitempty"`
		Each      bool    `json:"each,omitempty"` // every read was a block
		Effort    string  `json:"effort,omitempty"`
		Rate      float64 `json:"rate_Mbps,omitempty"` // of the sink; without: it took everything at once
		Runs      int     `json:"runs"`
		Blocks    int     `json:"blocks"`
		RawBytes  int     `json:"raw_bytes"`
		WireBytes float64 `json:"wire_bytes"`
		Ratio     float64 `json:"ratio"`
		Encode    float64 `json:"encode_MBps"`
		EncodeQ1  float64 `json:"encode_MBps_q1"`
		EncodeQ3  float64 `json:"encode_MBps_q3"`
		Decode    float64 `json:"decode_MBps"`
		DecodeQ1  float64 `json:"decode_MBps_q1"`
		DecodeQ3  float64 `json:"decode_MBps_q3"`
		LinkS     float64 `json:"link_s,omitempty"`         // until the sink had everything
		BesideZ3  float64 `json:"relative_zstd3,omitempty"` // wire bytes, of those of zstd -3 on the whole file
	}
	// meanRow is all files.
	meanRow struct {
		Part        string  `json:"part"`
		Codec       string  `json:"codec"`
		Stage       string  `json:"stage"`
		Pass        string  `json:"mean_of"` // not "pass": a mean is not one of the files
		Cut         string  `json:"cut"`
		Files       int     `json:"files"`
		Ratio       float64 `json:"ratio"`
		Least       float64 `json:"least_ratio"`
		Encode      float64 `json:"encode_MBps"`
		Decode      float64 `json:"decode_MBps"`
		EncodeLimit float64 `json:"relative_encode_limit"` // of copy, compare and hash
		DecodeLimit float64 `json:"relative_decode_limit"` // of copy and hash
	}
	limitsRow struct {
		Part     string  `json:"part"`
		Bytes    int     `json:"bytes"`
		Runs     int     `json:"runs"`
		Memcpy   float64 `json:"memcpy_MBps"`
		Memcmp   float64 `json:"memcmp_MBps"`
		XXHash64 float64 `json:"xxhash64_MBps"`
	}
	messagesRow struct {
		Part     string  `json:"part"`
		File     string  `json:"file"`
		Codec    string  `json:"codec"`
		Stage    string  `json:"stage"`
		Records  int     `json:"records"`
		RawBytes int     `json:"record_bytes"`
		Median   float64 `json:"median_wire_bytes"`
		Largest  float64 `json:"largest_wire_bytes"`
		Ratio    float64 `json:"ratio"`
		Us       float64 `json:"encode_decode_us"`
	}
	latencyRow struct {
		name           string
		Part           string  `json:"part"`
		Codec          string  `json:"codec"`
		Stage          string  `json:"stage,omitempty"`
		Level          int     `json:"level,omitempty"`
		Pass           string  `json:"mean_of,omitempty"`
		WAN            float64 `json:"wan_Mbps"`
		Files          int     `json:"files"`
		Latency        float64 `json:"latency_s"`
		Pipelined      float64 `json:"pipelined_s"`
		SavedBandwidth float64 `json:"relative_saved_bandwidth"`
		SavedLatency   float64 `json:"relative_saved_latency"`
		SavedPipelined float64 `json:"relative_saved_pipelined"`
	}
)

func (c compressor) name() string { return c.codec + " -" + string(rune('0'+c.level)) }

func (e *experiment) passKey(s codec.Spec, c cut, pass string) key {
	return key{part: partPass, codec: s.Kind.String(), stage: s.Stage.String(), cut: c.name, pass: pass}
}

// passNames are in the order of the tables.
var passNames = []string{"first", "second", "mod1", "mod5", "shift"}

// keys are all of what was run, without files, in the order of the result.
func (e *experiment) keys() (keys []key) {
	for _, s := range e.specs {
		for _, c := range e.cuts {
			for _, p := range passNames {
				keys = append(keys, e.passKey(s, c, p))
			}
		}
	}
	for _, s := range e.specs {
		k := key{codec: s.Kind.String(), stage: s.Stage.String(), cut: e.cuts[0].name}
		for effort := range codec.Efforts {
			k.part, k.effort = partEffort, effort.String()
			keys = append(keys, k)
		}
		k.part, k.effort = partLink, ""
		keys = append(keys, k)
	}
	for _, c := range compressors {
		keys = append(keys, key{part: partWhole, codec: c.codec, level: c.level, pass: "first"})
	}
	return keys
}

func (e *experiment) fileRows() (rows []fileRow) {
	for _, k := range e.keys() {
		for _, file := range e.files {
			k.file = file.name
			if f := e.seen[k]; f != nil {
				rows = append(rows, e.fileRow(k, f))
			}
		}
	}
	return rows
}

func (e *experiment) fileRow(k key, f *found) fileRow {
	encode, decode := f.encodeMBps().Digits(4), f.decodeMBps().Digits(4)
	r := fileRow{Part: k.part, File: k.file, Codec: k.codec, Stage: k.stage, Level: k.level, Pass: k.pass, Cut: k.cut, Runs: len(f.encodes),
		Blocks: f.blocks, RawBytes: f.raw, WireBytes: f.wireBytes(), Ratio: bench.Significant(f.ratio(), 6),
		Encode: encode.Median, EncodeQ1: encode.Q1, EncodeQ3: encode.Q3, Decode: decode.Median, DecodeQ1: decode.Q1, DecodeQ3: decode.Q3}
	if k.part == partWhole {
		r.Stage = codec.StageNone.String()
		return r
	}
	r.Effort = f.effort.String()
	r.Each = e.each
	if k.part == partPass {
		r.Rate = e.rate / 1e6
	}
	if k.part == partLink {
		r.Rate = slowLink / 1e6
	}
	if r.Rate > 0 {
		r.LinkS = bench.Significant(bench.Of(f.links).Median, 4)
	}
	if r.Rate > 0 && (k.pass == "first" || k.part == partLink) {
		if z := e.seen[key{part: partWhole, file: k.file, codec: "zstd", level: 3, pass: "first"}]; z != nil {
			r.BesideZ3 = bench.Significant(f.wireBytes()/z.wireBytes(), 5)
		}
	}
	return r
}

func (e *experiment) meanRows(l limitsRow) (rows []meanRow) {
	for _, s := range e.specs {
		for _, c := range e.cuts {
			for _, p := range passNames {
				m := e.meanOf(e.passKey(s, c, p))
				if m.files == 0 {
					continue
				}
				rows = append(rows, meanRow{Part: "mean", Codec: s.Kind.String(), Stage: s.Stage.String(), Pass: p, Cut: c.name, Files: m.files,
					Ratio: bench.Significant(m.ratio, 5), Least: bench.Significant(m.least, 5), Encode: bench.Significant(m.encode, 4),
					Decode: bench.Significant(m.decode, 4), EncodeLimit: bench.Significant(m.encode/l.encodeMBps(), 3),
					DecodeLimit: bench.Significant(m.decode/l.decodeMBps(), 3)})
			}
		}
	}
	return rows
}

func (e *experiment) messagesRows() (rows []messagesRow) {
	for _, s := range e.specs {
		m := e.messages[s]
		total, largest := 0.0, 0.0
		for _, w := range m.wire {
			total, largest = total+w, max(largest, w)
		}
		rows = append(rows, messagesRow{Part: "messages", File: m.file, Codec: s.Kind.String(), Stage: s.Stage.String(), Records: len(m.wire),
			RawBytes: recordBytes, Median: m.medianWire(), Largest: largest, Us: bench.Significant(bench.Of(m.us).Median, 3),
			Ratio: bench.Significant(float64(recordBytes*len(m.wire))/total, 4)})
	}
	return rows
}

func (e *experiment) limitsRow() limitsRow {
	of := func(runs []float64) float64 { return bench.Significant(bench.Of(runs).Median, 4) }
	return limitsRow{Part: "limits", Bytes: limitBytes, Runs: len(e.limits.memcpy), Memcpy: of(e.limits.memcpy), Memcmp: of(e.limits.memcmp),
		XXHash64: of(e.limits.xxhash64)}
}
