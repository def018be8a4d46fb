// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

const goldenFile = "testdata/golden.txt"

// goldenBlocks are blocks whose payloads have every form. The bytes are made up here, so that only payloads have to be kept.
func goldenBlocks() (blocks []goldenBlock) {
	noise := make([]byte, 3000)
	for x, i := uint32(1), 0; i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	prose := func(first, n int) (b []byte) {
		for i := range n {
			b = fmt.Appendf(b, "%d flows waited for path %d of %d; ", first+i, i*i%17, first*31+i*i)
		}
		return b
	}
	add := func(name string, stage codec.Stage, effort codec.Effort, rest bool, data []byte) {
		blocks = append(blocks, goldenBlock{name, stage, effort, rest, data})
	}
	for _, s := range []codec.Stage{codec.Zstd, codec.Zlib, codec.StageNone} {
		add("a message", s, codec.EffortDefault, false, prose(1, 3))
		add("another", s, codec.EffortDefault, false, prose(2, 3))
		add("text", s, codec.EffortDefault, false, prose(100, 60))
		add("more text", s, codec.EffortDefault, false, prose(200, 60))
		add("with more effort", s, codec.EffortBetter, false, prose(300, 60))
		add("after a rest", s, codec.EffortBetter, true, prose(400, 60))
		add("a message after it", s, codec.EffortBetter, false, prose(500, 3))
		add("noise", s, codec.EffortReferences, false, noise)
		add("noise again", s, codec.EffortDefault, false, noise[100:2900])
		add("noise in text", s, codec.EffortDefault, false, append(append(prose(600, 10), noise[500:2500]...), prose(700, 10)...))
		add("raw", s, codec.EffortRaw, false, noise[:300])
	}
	return blocks
}

type goldenBlock struct {
	name   string
	stage  codec.Stage
	effort codec.Effort
	rest   bool
	data   []byte
}

// TestGolden decodes the payloads that are kept: what this version has once sent, every later one with the same protocol version
// has to understand. It does not say that an encoder must go on making the same ones.
func TestGolden(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	kept, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(kept), []byte("\n"))
	blocks := goldenBlocks()
	if len(lines) != len(blocks) {
		t.Fatalf("%d payloads are kept for %d blocks", len(lines), len(blocks))
	}
	seen := map[form]bool{}
	var dec *Decoder
	for i, b := range blocks {
		if i == 0 || b.stage != blocks[i-1].stage {
			dec = NewDecoder(history.NewReceivers(1<<20), "g")
			defer dec.Close()
		}
		payload, err := hex.DecodeString(string(lines[i]))
		if err != nil {
			t.Fatal(err)
		}
		seen[formOf(payload[0])] = true
		if got, err := dec.Decode(payload); err != nil || !bytes.Equal(got, b.data) {
			t.Errorf("%v, %s: %d bytes, %v", b.stage, b.name, len(got), err)
		}
	}
	for f := formNone; f <= formModelNew; f++ {
		if !seen[f] {
			t.Errorf("no payload has form %d", f)
		}
	}
}

func writeGolden(t *testing.T) {
	var out bytes.Buffer
	var enc *Encoder
	blocks := goldenBlocks()
	for i, b := range blocks {
		if i == 0 || b.stage != blocks[i-1].stage {
			enc = NewEncoder(history.NewSenders(1<<20).Group("g"), Options{Stage: b.stage})
			defer enc.Close()
		}
		if b.rest {
			enc.Rest()
		}
		enc.SetEffort(b.effort)
		fmt.Fprintf(&out, "%x\n", enc.Encode(nil, b.data))
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
