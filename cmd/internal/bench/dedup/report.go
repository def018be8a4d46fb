// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"strconv"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// report makes rows, tables and plots of what was found.
func (e *experiment) report() *bench.Report {
	r := &bench.Report{}
	limits := e.limitsRow()
	r.Rows = append(r.Rows, limits)
	files, means, latencies, messages := e.fileRows(), e.meanRows(limits), e.latencyRows(), e.messagesRows()
	addRows(r, files)
	addRows(r, means)
	addRows(r, messages)
	addRows(r, latencies)
	for _, pass := range passNames {
		r.Tables = append(r.Tables, e.ratioTable(pass))
	}
	r.Tables = append(r.Tables, e.speedTable(means, limits), e.compareTable())
	if len(e.cuts) > 1 {
		r.Tables = append(r.Tables, e.cutTable())
	}
	if t := e.linkTable(files); len(t.Rows) > 0 {
		r.Tables = append(r.Tables, t)
	}
	r.Tables = append(r.Tables, messagesTable(messages), e.latencyTable(latencies))
	if t := e.paperTable(); len(t.Rows) > 0 {
		r.Tables = append(r.Tables, t)
	}
	r.Plots = e.plots(latencies)
	return r
}

func addRows[T any](r *bench.Report, rows []T) {
	for _, row := range rows {
		r.Rows = append(r.Rows, row)
	}
}

var passTitles = map[string]string{
	"first":  "First send: raw bytes / bytes on the wire",
	"second": "The same file again (experiments 1 and 3)",
	"mod1":   "Then a copy with 1 % inserted (experiment 2)",
	"mod5":   "Then a copy with 5 % inserted (experiment 2)",
	"shift":  "Then with one byte in front",
}

// ratioTable is one pass: files against codecs.
func (e *experiment) ratioTable(pass string) bench.Table {
	t := bench.Table{Title: passTitles[pass], Header: []string{"FILE", "MB"}, Words: 1}
	for _, s := range e.specs {
		t.Header = append(t.Header, short(s))
	}
	for _, f := range e.files {
		row := []string{shortName(f.name), bench.Figure(float64(len(f.data)) / 1e6)}
		for _, s := range e.specs {
			k := e.passKey(s, e.cuts[0], pass)
			k.file = f.name
			row = append(row, ratioFigure(e.seen[k].ratio()))
		}
		t.Add(row...)
	}
	means, least := []string{"MEAN", ""}, []string{"LEAST", ""}
	for _, s := range e.specs {
		m := e.meanOf(e.passKey(s, e.cuts[0], pass))
		means, least = append(means, ratioFigure(m.ratio)), append(least, ratioFigure(m.least))
	}
	t.Add(means...)
	t.Add(least...)
	if pass == "first" {
		t.Notes = append(t.Notes, fmt.Sprintf("Reads of %s%s. w is wanproxy, w2 wanproxy2; +zs and +zl are the second stages zstd and zlib. Payloads and "+
			"frame headers count. MEAN is arithmetic over files, as in the paper.", e.cuts[0].name, e.how()))
		t.Notes = append(t.Notes, e.notes...)
	}
	return t
}

// how says what else the passes were run with.
func (e *experiment) how() string {
	text := ", effort " + e.effort.String()
	if e.rate > 0 {
		text = fmt.Sprintf(", over %s", mbps(e.rate))
	}
	if e.each {
		text += ", each a block"
	}
	return text
}

func mbps(bits float64) string { return bench.Figure(bits/1e6) + " Mbit/s" }

// short is a spec as the head of a narrow column.
func short(s codec.Spec) string {
	kinds := map[codec.Kind]string{codec.WANProxy: "w", codec.WANProxy2: "w2"}
	name, ok := kinds[s.Kind]
	if !ok {
		name = s.Kind.String()
	}
	return name + map[codec.Stage]string{codec.Zstd: "+zs", codec.Zlib: "+zl"}[s.Stage]
}

// shortName keeps tables on the page.
func shortName(name string) string {
	const most = 14
	if len(name) <= most {
		return name
	}
	return ".." + name[len(name)-most+2:]
}

// ratioFigure has no more digits than mean something; an empty cell is one that was not measured.
func ratioFigure(v float64) string {
	if v == 0 {
		return ""
	}
	return bench.Figure(v)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) }

// speedTable is the means over files beside what memory allows.
func (e *experiment) speedTable(means []meanRow, l limitsRow) bench.Table {
	t := bench.Table{Title: "Speed, MB per second of one core's CPU time, all files together; LIMIT is the share of what memory allows", Words: 2,
		Header: []string{"CODEC", "PASS", "RATIO", "LEAST", "ENCODE MB/s", "LIMIT", "DECODE MB/s", "LIMIT"}}
	for _, m := range means {
		if m.Cut != e.cuts[0].name {
			continue
		}
		t.Add(m.Codec+stageSuffix(m.Stage), m.Pass, bench.Figure(m.Ratio), bench.Figure(m.Least), bench.Figure(m.Encode), bench.Figure(m.EncodeLimit),
			bench.Figure(m.Decode), bench.Figure(m.DecodeLimit))
	}
	t.Notes = []string{fmt.Sprintf("Cold, %d MB, medians of %d: memcpy %s MB/s, memcmp %s, xxhash64 %s. To encode repeats is to copy, compare and hash: %s MB/s; "+
		"to decode them to copy and hash: %s.", l.Bytes/1e6, l.Runs, bench.Figure(l.Memcpy), bench.Figure(l.Memcmp), bench.Figure(l.XXHash64),
		bench.Figure(l.encodeMBps()), bench.Figure(l.decodeMBps()))}
	return t
}

func stageSuffix(stage string) string {
	if stage == codec.StageNone.String() {
		return ""
	}
	return "+" + stage
}

// compareTable is first sends by effort beside the compressors of the same library.
func (e *experiment) compareTable() bench.Table {
	t := bench.Table{Title: "New data: compressors on whole files, and the native codec by effort", Words: 1,
		Header: []string{"METHOD", "RATIO", "WIRE MB", "ENCODE MB/s", "OF THE SAME LEVEL ALONE", "DECODE MB/s"}}
	alone := map[string]float64{}
	add := func(name string, m mean, beside string) {
		if m.files > 0 {
			t.Add(name, bench.Figure(m.ratio), bench.Figure(m.wire/1e6), bench.Figure(m.encode), beside, bench.Figure(m.decode))
		}
	}
	for _, c := range compressors {
		m := e.meanOf(key{part: partWhole, codec: c.codec, level: c.level, pass: "first"})
		if c.codec == "zstd" {
			alone[c.as.String()] = m.encode
		}
		add(c.name(), m, "")
	}
	for _, s := range e.specs {
		for effort := range codec.Efforts {
			m := e.meanOf(key{part: partEffort, codec: s.Kind.String(), stage: s.Stage.String(), cut: e.cuts[0].name, effort: effort.String()})
			beside := ""
			if a := alone[effort.String()]; a > 0 {
				beside = bench.Figure(m.encode / a)
			}
			add(s.String()+", "+effort.String(), m, beside)
		}
	}
	return t
}
