// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// run runs the bench with flags as on a command line.
func run(t *testing.T, o bench.Options, flags ...string) (*bench.Report, error) {
	t.Helper()
	b := New()
	set := pflag.NewFlagSet("dedup", pflag.ContinueOnError)
	b.Flags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	var report *bench.Report
	inner := b.Run
	b.Run = func(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
		report, err = inner(ctx, s)
		return report, err
	}
	o.Stderr = io.Discard
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	return report, bench.Run(t.Context(), b, o)
}

// corpusDir is a directory as users have them: text, what does not compress, and what is to be left out.
func corpusDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range generate(300<<10, 3) {
		if f.name == "logs.json" || f.name == "packed.bin" {
			write(t, filepath.Join(dir, "sub", f.name), f.data)
		}
	}
	write(t, filepath.Join(dir, "SHA256SUMS"), []byte("small"))
	write(t, filepath.Join(dir, ".hidden", "big"), make([]byte, 1<<20))
	return dir
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCodecOverADirectory(t *testing.T) {
	var out bytes.Buffer
	dir := filepath.Join(t.TempDir(), "out")
	report, err := run(t, bench.Options{Seed: 5, JSON: true, Out: dir, Stdout: &out}, "--dir", corpusDir(t), "--runs", "1", "--cut", "64KiB,1460")
	if err != nil {
		t.Fatal(err)
	}
	benchtest.CheckRows(t, report.Rows)
	benchtest.CheckTables(t, report.Tables)
	var r struct{ Rows []map[string]any }
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	limits, passes := 0, map[string]bool{}
	for _, row := range r.Rows {
		if row["memcpy_MBps"] != nil && row["memcmp_MBps"] != nil && row["xxhash64_MBps"] != nil {
			limits++
		}
		if row["part"] != "pass" {
			continue
		}
		ratio := row["raw_bytes"].(float64) / row["wire_bytes"].(float64)
		pass, stage := row["pass"].(string), row["stage"].(string)
		passes[strings.Join([]string{row["file"].(string), row["codec"].(string), stage, pass, row["cut"].(string)}, " ")] = true
		if pass != "first" && ratio < 20 || pass == "first" && row["file"] == "sub/logs.json" && stage != "none" && ratio < 2 {
			t.Errorf("%v", row)
		}
	}
	if want := 2 * len(codecKinds()) * len(codec.Stages()) * len(passNames) * 2; limits != 1 || len(passes) != want {
		t.Errorf("%d rows of limits, %d of passes, want 1 and %d", limits, len(passes), want)
	}
	for _, name := range []string{"table.txt", "bench.json", "saved-10mbit.svg", "saved-1000mbit.svg", "ratio-second.svg"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
}

func TestOverALink(t *testing.T) {
	report, err := run(t, bench.Options{Seed: 5}, "--dir", corpusDir(t), "--runs", "1", "--cut", "random", "--codec", "native", "--stage", "zstd", "--rate", "10Mbit")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, row := range report.Rows {
		r, ok := row.(fileRow)
		if !ok || r.Part != partPass || r.Pass != "first" {
			continue
		}
		seen++
		// The link alone takes that long, and the computed clock has nothing else that could be slower.
		if least := r.WireBytes * 8 / 10e6; r.LinkS < 0.999*least || r.Rate != 10 || r.BesideZ3 <= 0 {
			t.Errorf("%v took %v s, want at least %v", r.File, r.LinkS, least)
		}
	}
	if seen != 2 {
		t.Errorf("%d first sends", seen)
	}
}

func TestWithoutADirectory(t *testing.T) {
	report, err := run(t, bench.Options{Quick: true, Seed: 1}, "--codec", "native", "--stage", "none", "--most", "200KiB", "--each", "--cut", "1460")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, row := range report.Rows {
		if r, ok := row.(fileRow); ok {
			files[r.File] = true
		}
	}
	if len(files) != len(kinds) {
		t.Errorf("the files are %v", files)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--codec", "gzip"}, `--codec: codec "gzip" is not known; use native`},
		{[]string{"--stage", "lzma"}, `--stage: second stage "lzma" is not known; use zstd, zlib, none`},
		{[]string{"--cut", "0"}, `--cut "0" is no size of reads; write it like 1460, 64KiB, random or whole`},
		{[]string{"--rate", "10"}, `--rate: rate "10": it has no unit; write it like 10Mbit or 1Gbit`},
		{[]string{"--runs", "-1"}, "--runs -1 must be from 1 to 1000"},
		{[]string{"--effort", "huge"}, `--effort "huge" is not known; use raw, references, fastest, default or better`},
		{[]string{"--least", "1MiB", "--most", "1kB"}, "--most 1kB is less than --least 1MiB"},
		{[]string{"--dir", "/proc/none"}, "--dir /proc/none: "},
		{[]string{"--dir", t.TempDir()}, "no file in it has 65536 bytes or more"},
	} {
		if _, err := run(t, bench.Options{}, c.flags...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.flags, err, c.want)
		}
	}
}

func TestInterrupted(t *testing.T) {
	b := New()
	b.Flags(pflag.NewFlagSet("dedup", pflag.ContinueOnError))
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bench.Run(ctx, b, bench.Options{Quick: true, Stdout: io.Discard, Stderr: io.Discard}); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestModified(t *testing.T) {
	data := generate(1<<20, 1)[0].data
	for _, share := range []float64{0.01, 0.05} {
		out := modified(data, share, 7)
		if added := float64(len(out)-len(data)) / float64(len(data)); added < share || added > share+float64(pieceMost)/float64(len(data)) {
			t.Errorf("%v of the file inserted, want %v", added, share)
		}
		if !bytes.Equal(out, modified(data, share, 7)) || bytes.Equal(out, modified(data, share, 8)) {
			t.Error("the seed does not decide what is inserted")
		}
		if !subsequence(data, out) {
			t.Error("something of the file is gone")
		}
	}
	if out := shifted(data); len(out) != len(data)+1 || !bytes.Equal(out[1:], data) {
		t.Error("shift is not one byte in front")
	}
}

// subsequence tells whether all of data comes in out, in order.
func subsequence(data, out []byte) bool {
	for _, b := range out {
		if len(data) > 0 && data[0] == b {
			data = data[1:]
		}
	}
	return len(data) == 0
}

func TestBlocksAreWholeReads(t *testing.T) {
	for _, c := range []struct {
		cut          string
		each         bool
		target, left int
		want         []int
	}{
		{"1000", false, 2500, 4700, []int{2000, 2000, 700}},
		{"1000", true, 2500, 2300, []int{1000, 1000, 300}},
		{"4000", false, 2500, 9000, []int{2500, 1500, 2500, 2500}},
		{"whole", false, 2500, 6000, []int{2500, 2500, 1000}},
	} {
		size, err := parseCut(c.cut)
		if err != nil {
			t.Fatal(err)
		}
		r := newReads(size, c.each, 1)
		var got []int
		for left := c.left; left > 0; left -= got[len(got)-1] {
			got = append(got, r.block(c.target, left))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("reads of %s: blocks %v, want %v", c.cut, got, c.want)
		}
	}
	r := newReads(cut{name: "random"}, false, 1)
	for left := 1 << 20; left > 0; {
		n := r.block(64<<10, left)
		if n < 1 || n > min(64<<10, left) {
			t.Fatalf("a block of %d bytes, %d left", n, left)
		}
		left -= n
	}
}
