// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"testing"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A world is a link and a machine on which a governor is tried: one block is encoded after the other, and the link has a
// buffer before it.
type world struct {
	link    float64                // bytes a second
	speed   [codec.Efforts]float64 // bytes a second of encoding
	ratio   [codec.Efforts]float64
	buffer  float64 // bytes that the link takes without waiting
	block   int
	between time.Duration // what the application takes for a block; 0: input is always waiting
	queued  float64       // bytes in the buffer
}

// run lets n blocks pass and returns how often each effort was used among the last half of them, and the time that all took.
func (w *world) run(g *Governor, n int) (used [codec.Efforts]int, took time.Duration) {
	pass := func(d time.Duration) {
		took += d
		w.queued = max(0, w.queued-w.link*d.Seconds())
	}
	for i := range n {
		e := g.Effort()
		if i >= n/2 {
			used[e]++
		}
		s := Step{RawBytes: w.block, WireBytes: int(float64(w.block) / w.ratio[e]), Waiting: w.between == 0}
		s.Encode = time.Duration(float64(w.block) / w.speed[e] * 1e9)
		pass(s.Encode)
		s.LinkBusy = w.queued > 0
		w.queued += float64(s.WireBytes)
		if over := w.queued - w.buffer; over > 0 {
			s.LinkWait = time.Duration(over / w.link * 1e9)
			pass(s.LinkWait)
		}
		g.Next(s)
		pass(w.between)
	}
	return used, took
}

var (
	textSpeed  = [codec.Efforts]float64{6e9, 1.2e9, 200e6, 110e6, 50e6}
	textRatio  = [codec.Efforts]float64{1, 1.01, 4, 5, 5.5}
	refsRatio  = [codec.Efforts]float64{1, 5000, 5000, 5000, 5000}
	refsSpeed  = [codec.Efforts]float64{6e9, 2.5e9, 2.5e9, 2.5e9, 2.5e9}
	noiseRatio = [codec.Efforts]float64{1, 1, 1, 1, 1}
)

func TestGovernor(t *testing.T) {
	for _, c := range []struct {
		name  string
		world world
		want  codec.Effort // used most once it has settled
		share int          // of the blocks, at least, in percent
	}{
		{"10 Mbit/s", world{1.25e6, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortBetter, 95},
		{"10 Mbit/s, no buffer", world{1.25e6, textSpeed, textRatio, 0, 128 << 10, 0, 0}, codec.EffortBetter, 95},
		{"60 Mbit/s", world{7.5e6, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortBetter, 80},
		{"200 Mbit/s", world{25e6, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortDefault, 60},
		{"1 Gbit/s", world{125e6, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortFastest, 60},
		{"8 Gbit/s", world{1e9, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortReferences, 60},
		{"40 Gbit/s", world{5e9, textSpeed, textRatio, 2e6, 128 << 10, 0, 0}, codec.EffortRaw, 60},
		{"noise on 40 Gbit/s", world{5e9, textSpeed, noiseRatio, 2e6, 128 << 10, 0, 0}, codec.EffortRaw, 60},
		{"repeats on 40 Gbit/s", world{5e9, refsSpeed, refsRatio, 2e6, 1 << 20, 0, 0}, codec.EffortDefault, 90},
		{"a slow application", world{125e6, textSpeed, textRatio, 2e6, 64 << 10, 10 * time.Millisecond, 0}, codec.EffortDefault, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewGovernor()
			used, took := c.world.run(g, 4000)
			t.Logf("%v, %.1f MB/s", used, float64(4000*c.world.block)/took.Seconds()/1e6)
			if used[c.want]*100 < c.share*2000 {
				t.Errorf("%v is used in %d of 2000 blocks", c.want, used[c.want])
			}
		})
	}
}

// TestGovernorFollows changes the link below a flow.
func TestGovernorFollows(t *testing.T) {
	g := NewGovernor()
	for i, c := range []struct {
		link float64
		want codec.Effort
	}{{1.25e6, codec.EffortBetter}, {1e9, codec.EffortReferences}, {1.25e6, codec.EffortBetter}} {
		w := world{c.link, textSpeed, textRatio, 1e6, 128 << 10, 0, 0}
		if used, _ := w.run(g, 4000); used[c.want] < 1000 {
			t.Errorf("link %d: %v is used in %d of 2000 blocks: %v", i, c.want, used[c.want], used)
		}
	}
}

// TestGovernorBegins has the first blocks fill the buffers before a slow link: that the link takes them at once says nothing.
func TestGovernorBegins(t *testing.T) {
	g := NewGovernor()
	w := world{1.25e6, textSpeed, textRatio, 4e6, 128 << 10, 0, 0}
	for range 400 {
		w.run(g, 1)
		if g.Effort() < codec.EffortFastest {
			t.Fatalf("effort %v", g.Effort())
		}
	}
}
