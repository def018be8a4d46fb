// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"strconv"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// cutTable is what the size of reads changes.
func (e *experiment) cutTable() bench.Table {
	t := bench.Table{Title: "Mean ratios by the size of reads", Words: 2, Header: []string{"CODEC", "READS", "FIRST", "SECOND", "LEAST", "1 %", "5 %", "SHIFT"}}
	for _, s := range e.specs {
		for _, c := range e.cuts {
			row := []string{s.String(), c.name}
			for _, p := range passNames {
				m := e.meanOf(e.passKey(s, c, p))
				row = append(row, ratioFigure(m.ratio))
				if p == "second" {
					row = append(row, ratioFigure(m.least))
				}
			}
			t.Add(row...)
		}
	}
	return t
}

// linkTable is first sends over a link, beside zstd -3 on the whole file.
func (e *experiment) linkTable(rows []fileRow) bench.Table {
	rate := slowLink
	if e.rate > 0 {
		rate = e.rate
	}
	t := bench.Table{Title: "First send over " + mbps(rate) + ", the governor choosing the effort", Words: 2,
		Header: []string{"FILE", "CODEC", "MB", "WIRE MB", "zstd -3 MB", "RELATIVE", "BLOCKS", "s", "LAST EFFORT"}}
	total, beside, count := 0.0, 0.0, 0
	for _, r := range rows {
		if r.BesideZ3 == 0 || r.Cut != e.cuts[0].name {
			continue
		}
		z := r.WireBytes / r.BesideZ3
		t.Add(shortName(r.File), r.Codec+stageSuffix(r.Stage), bench.Figure(float64(r.RawBytes)/1e6), mega(r.WireBytes), mega(z),
			fmt.Sprintf("%.4f", r.BesideZ3), strconv.Itoa(r.Blocks), bench.Figure(r.LinkS), r.Effort)
		total, beside, count = total+r.WireBytes, beside+z, count+1
	}
	if count > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("All together: %.4f of the bytes of zstd -3 of the same library on whole files.", total/beside),
			"The clock is computed from the CPU time of encoding and from what the rate says; nothing waits.")
	}
	return t
}

func mega(bytes float64) string { return strconv.FormatFloat(bytes/1e6, 'f', 3, 64) }

func messagesTable(rows []messagesRow) bench.Table {
	t := bench.Table{Words: 1, Header: []string{"CODEC", "MEDIAN WIRE BYTES", "LARGEST", "RATIO OF ALL", "ENCODE + DECODE us"}}
	for _, r := range rows {
		t.Title = fmt.Sprintf("Small messages: %d consecutive records of %d bytes of %s, one by one, in a fresh flow", r.Records, r.RawBytes, r.File)
		t.Add(r.Codec+stageSuffix(r.Stage), bench.Figure(r.Median), bench.Figure(r.Largest), bench.Figure(r.Ratio), bench.Figure(r.Us))
	}
	return t
}

// latencyTable is the paper's latency.
func (e *experiment) latencyTable(rows []latencyRow) bench.Table {
	t := bench.Table{Title: fmt.Sprintf("The paper's latency of a file in s, mean: LAN %d Mbit/s, encode, WAN, decode, LAN, one after the other; PIPED: the "+
		"slowest of these; SAVED: of the latency without proxies, in %%", lanMbps), Words: 1,
		Header: []string{"METHOD", "10 Mbit/s", "SAVED", "100 Mbit/s", "SAVED", "PIPED", "1 Gbit/s", "SAVED", "PIPED"}}
	for i := 0; i+len(wansMbps) <= len(rows); i += len(wansMbps) {
		slow, middle, fast := rows[i], rows[i+1], rows[i+2]
		t.Add(slow.name, bench.Figure(slow.Latency), percent(slow.SavedLatency), bench.Figure(middle.Latency), percent(middle.SavedLatency),
			bench.Figure(middle.Pipelined), bench.Figure(fast.Latency), percent(fast.SavedLatency), bench.Figure(fast.Pipelined))
	}
	return t
}

// paperTable is what the paper says of differences, here and there.
func (e *experiment) paperTable() bench.Table {
	t := bench.Table{Title: "What the paper says of its files, and what was found with these", Words: 1, Header: []string{"FIGURE", "HERE", "THE PAPER"}}
	add := func(name string, here float64, ok bool, format, paper string) {
		if ok {
			t.Add(name, fmt.Sprintf(format, here), paper)
		}
	}
	spec := func(k codec.Kind, s codec.Stage) codec.Spec { return codec.Spec{Kind: k, Stage: s} }
	plain, zstd, zlib := spec(codec.WANProxy, codec.StageNone), spec(codec.WANProxy, codec.Zstd), spec(codec.WANProxy, codec.Zlib)
	ratio := func(s codec.Spec, pass string) float64 { return e.meanOf(e.passKey(s, e.cuts[0], pass)).ratio }
	late := func(s codec.Spec, pass string, wan float64) float64 {
		return e.latencyOf(e.passKey(s, e.cuts[0], pass), wan).sequential
	}
	more := func(a, b float64) (float64, bool) { return 100 * (a/max(b, 1e-9) - 1), a > 0 && b > 0 }
	addMore := func(name string, a, b float64, paper string) {
		v, ok := more(a, b)
		add(name, v, ok, "%+.1f %%", paper)
	}
	add("wanproxy, second send: mean ratio", ratio(plain, "second"), ratio(plain, "second") > 0, "%.1f", "150.6")
	add("wanproxy+zstd, second send: mean ratio", ratio(zstd, "second"), ratio(zstd, "second") > 0, "%.1f", "200.1")
	for i, s := range []codec.Spec{plain, zstd, zlib} {
		two := spec(codec.WANProxy2, s.Stage)
		addMore(fmt.Sprintf("%v against %v: ratio", two, s), ratio(two, "second"), ratio(s, "second"), [...]string{"+34.8 %", "+9.7 %", "+11.2 %"}[i])
	}
	for i, s := range []codec.Spec{plain, zstd} {
		addMore(fmt.Sprintf("%v, 5 %% modified against unmodified: ratio", s), ratio(s, "mod5"), ratio(s, "second"), [...]string{"-63.7 %", "-46.8 %"}[i])
	}
	for i, wan := range []float64{10, 100} {
		at := fmt.Sprintf(" at %v Mbit/s", wan)
		saved := func(s codec.Spec) (float64, bool) {
			l := e.latencyOf(e.passKey(s, e.cuts[0], "second"), wan)
			return 100 * l.savedLatency, l.files > 0
		}
		v, ok := saved(plain)
		add("wanproxy"+at+": latency saved", v, ok, "%.1f %%", [...]string{"95.2 %", "60.7 %"}[i])
		v, ok = saved(zstd)
		add("wanproxy+zstd"+at+": latency saved", v, ok, "%.1f %%", [...]string{"94.6 %", "58.5 %"}[i])
		addMore("wanproxy2 against wanproxy"+at+": latency", late(spec(codec.WANProxy2, codec.StageNone), "second", wan), late(plain, "second", wan),
			[...]string{"-13.8 %", "-12.9 %"}[i])
		addMore("the zstd stage's cost"+at+": latency", late(zstd, "second", wan), late(plain, "second", wan), [...]string{"+2.1 %", "+5.2 %"}[i])
		addMore("wanproxy, 5 % modified"+at+": latency", late(plain, "mod5", wan), late(plain, "second", wan), [...]string{"+26.0 %", "+11.7 %"}[i])
	}
	e.ownFigures(&t, ratio)
	return t
}

// ownFigures are the same differences of the native codec, which the paper cannot know.
func (e *experiment) ownFigures(t *bench.Table, ratio func(codec.Spec, string) float64) {
	for _, s := range e.specs {
		second := ratio(s, "second")
		if s.Kind != codec.Native || second == 0 {
			continue
		}
		t.Add(fmt.Sprintf("%v, 5 %% modified against unmodified: ratio", s), fmt.Sprintf("%+.1f %%", 100*(ratio(s, "mod5")/second-1)), "")
		t.Add(fmt.Sprintf("%v, one byte in front against unmodified: ratio", s), fmt.Sprintf("%+.1f %%", 100*(ratio(s, "shift")/second-1)), "")
	}
}
