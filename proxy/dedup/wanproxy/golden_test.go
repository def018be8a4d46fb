// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

var update = flag.Bool("update", false, "write the golden wire vectors anew")

// script is what the golden vectors are of: blocks that take every command and every field of a payload. Long literals are
// cut out of the vectors, so that they can be read.
func script() (blocks [][]byte) {
	a, b, c := random(1, 256), random(2, 256), random(3, 300)
	m := bytes.Repeat([]byte{magic}, 40)
	add := func(parts ...[]byte) { blocks = append(blocks, bytes.Join(parts, nil)) }
	add([]byte("short"))        // literals
	add(a, b)                   // EXTRACT, the first begun by the literals before
	add([]byte{magic, 1})       // ESCAPE
	add(c[:200])                // EXTRACT, begun before
	add(a, b)                   // REF, the first behind literals
	add(a[:100])                // REF of which only a part is there
	add(a[100:128], b)          // and the rest, and REF
	add(a[:50])                 // REF of which a part is there,
	add(c[:80])                 // that goes on otherwise
	s := a[123:251]             // lies so that it is a segment
	add(s, m, s)                // EXT_REF
	add(b, []byte("end"))       // a literal tail
	add(s, m, s, []byte{9})     // OVER_REF
	add(s, m[:30], []byte{8})   // OVER_EXT
	add(bytes.Repeat(c, 4))     // segments within a block
	add([]byte("SSH-2.0-none")) // nothing special: only a flow's beginning counts
	return blocks
}

// TestGolden: the bytes on the wire stay as they are, and the decoder still understands those of earlier versions. What the
// libraries of the second stage give may change; it has only to be understood.
func TestGolden(t *testing.T) {
	for _, spec := range []codec.Spec{
		{Kind: codec.WANProxy, Stage: codec.StageNone, SegmentBytes: 128}, {Kind: codec.WANProxy2, Stage: codec.StageNone, SegmentBytes: 128},
		{Kind: codec.WANProxy2, Stage: codec.Zstd, SegmentBytes: 128}, {Kind: codec.WANProxy2, Stage: codec.Zlib, SegmentBytes: 128},
	} {
		t.Run(spec.String(), func(t *testing.T) {
			path := filepath.Join("testdata", spec.String()+".txt")
			made := vectors(t, spec)
			if *update {
				if err := os.WriteFile(path, []byte(strings.Join(made, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; go test -update writes it", err)
			}
			golden := strings.Fields(string(b))
			for i, g := range golden {
				if spec.Stage == codec.StageNone && g != made[i] {
					t.Errorf("payload %d is\n%s, was\n%s", i, made[i], g)
				}
			}
			understand(t, spec, golden)
		})
	}
}

// vectors are the payloads of the script, and then the answers to an ask for segments and to one for a block.
func vectors(t *testing.T, spec codec.Spec) (list []string) {
	f := newEnds(spec, 1<<20).flow()
	defer f.close()
	for _, b := range script() {
		list = append(list, hex.EncodeToString(f.enc.Encode(nil, b)))
	}
	last := uint64(len(list) - 1)
	for _, ask := range []codec.Ask{
		{Block: last, Detail: appendHash([]byte{magic, opAsk}, sum(random(1, 256)[123:251]))}, {Block: last, Retire: true},
	} {
		err := f.enc.Resend(ask, func(p []byte) error { list = append(list, hex.EncodeToString(p)); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// understand decodes golden payloads.
func understand(t *testing.T, spec codec.Spec, golden []string) {
	dec := newEnds(spec, 1<<20).flow().dec
	defer dec.Close()
	blocks := script()
	for i, g := range golden {
		p, err := hex.DecodeString(g)
		if err != nil {
			t.Fatal(err)
		}
		got, err := dec.Decode(p)
		switch {
		case i < len(blocks) && (err != nil || !bytes.Equal(got, blocks[i])):
			t.Fatalf("payload %d: %d bytes, %v", i, len(got), err)
		case i == len(blocks) && !errors.Is(err, errFormat): // LEARN that nobody asked for
			t.Fatalf("LEARN: %v", err)
		}
	}
}

// TestCommands: the script takes all commands.
func TestCommands(t *testing.T) {
	f := newEnds(codec.Spec{Kind: codec.WANProxy2, Stage: codec.StageNone, SegmentBytes: 128}, 1<<20).flow()
	defer f.close()
	seen := map[string]bool{}
	for _, b := range script() {
		p, err := f.dec.parse(f.enc.Encode(nil, b))
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range []string{"break", "skip", "cut"} {
			seen[n] = seen[n] || p.is(1<<i)
		}
		c := p.commands
		for i := bytes.IndexByte(c, magic); i >= 0; i = bytes.IndexByte(c, magic) {
			op := c[i+1]
			seen[fmt.Sprint(op)] = true
			r := reader{b: c[i+2:]}
			switch op {
			case opExtract:
				r.take(128 - p.skip)
				p.skip = 0
			case opRef:
				r.take(8)
				p.skip = 0
			case opOverRef:
				r.take(10)
			case opExtRef:
				r.take(r.length() + 8)
			case opOverExt:
				r.take(r.length())
			}
			c = r.b
		}
	}
	for _, n := range []string{"break", "skip", "cut", "0", "1", "2", "4", "5", "6"} {
		if !seen[n] {
			t.Errorf("%s does not occur", n)
		}
	}
}
