// SPDX-License-Identifier: Apache-2.0

package twoends

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

func peering(t *testing.T) *Peering {
	t.Helper()
	p, err := New(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFlow(t *testing.T) {
	p := peering(t)
	data := make([]byte, 240_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	for _, pass := range []string{"first", "again"} {
		f := p.Begin(codec.Spec{}, codec.EffortDefault, nil)
		ticks := time.Duration(0)
		f.Clock = func() time.Duration { ticks++; return ticks }
		frame, took := f.Send(data[:100_000])
		f.Send(data[100_000:])
		if err := f.Deliver(data); err != nil {
			t.Fatalf("%s: %v", pass, err)
		}
		if f.RawBytes != len(data) || f.Blocks != 2 || f.WireBytes < frame || f.WireBytes > len(data)+1000 || took != 1 || f.Encode != 2 || f.Decode != 2 {
			t.Errorf("%s: %d bytes in %d blocks as %d, %v and %v", pass, f.RawBytes, f.Blocks, f.WireBytes, f.Encode, f.Decode)
		}
		if c := f.Encoder().Counters(); pass == "again" && c.RefBytes != c.RawBytes {
			t.Errorf("of %d bytes sent again %d were referred to", c.RawBytes, c.RefBytes)
		}
		f.End()
	}
}

func TestFlowTellsWhatIsWrong(t *testing.T) {
	p := peering(t)
	for name, want := range map[string][]byte{"other": []byte("abcx"), "short": []byte("abc"), "long": []byte("abcde")} {
		f := p.Begin(codec.Spec{}, codec.EffortDefault, nil)
		f.Send([]byte("abcd"))
		if err := f.Deliver(want); err == nil {
			t.Errorf("%s: no error", name)
		}
		f.End()
	}
}

func TestProbe(t *testing.T) {
	data := make([]byte, 200_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	p, err := NewProbe(codec.Spec{}, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	p.Send(data[:100_000])
	p.Send(data[100_000:])
	p.Send(data[50_000:150_000])
	if got := p.End(); got < 99_000 || got > 100_000 {
		t.Errorf("%d bytes repeat, want 100000", got)
	}
}
