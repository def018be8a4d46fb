// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var (
	here  = Path{Prefix: netip.MustParsePrefix("203.0.113.0/24")}
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func chosen(t *testing.T, c *Chooser) Decision {
	t.Helper()
	d := c.Decisions()
	if len(d) != 1 {
		t.Fatalf("%d decisions, want one", len(d))
	}
	return d[0]
}

// What a path turns out to be, and what it gets.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		name       string
		candidates []string
		rateMbps   float64
		rtt        time.Duration
		queueBDP   float64
		loss       float64
		class      Class
		want       string
		changes    int
	}{
		{"noise", DefaultCandidates, 40, 50 * time.Millisecond, 1, 1e-2, Random, "bbr", 1},
		{"noise, faster", DefaultCandidates, 100, 80 * time.Millisecond, 1, 5e-3, Random, "bbr", 1},
		{"noise, and nothing ignores it", []string{"tl_cubic", "tl_illinois"}, 40, 50 * time.Millisecond, 1, 1e-2, Random, "tl_illinois", 0},
		{"noise, and cubic is the only one", []string{"tl_cubic"}, 40, 50 * time.Millisecond, 1, 1e-2, Random, "tl_cubic", 0},
		{"little noise", DefaultCandidates, 40, 50 * time.Millisecond, 1, 1e-4, Congestive, "tl_illinois", 0},
		{"a deep queue", DefaultCandidates, 40, 50 * time.Millisecond, 1, 0, Congestive, "tl_illinois", 0},
		{"a short queue", DefaultCandidates, 40, 50 * time.Millisecond, 0.1, 0, Shallow, "tl_illinois", 0},
		{"no queue ever fills", DefaultCandidates, 1, 50 * time.Millisecond, 1000, 0, Clean, "tl_illinois", 0},
		{"only bbr", []string{"bbr"}, 40, 50 * time.Millisecond, 1, 0, Unknown, "bbr", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			chooser := New(Options{Candidates: c.candidates})
			changes, _ := newNetwork(c.rateMbps, c.rtt, c.queueBDP, c.loss).run(chooser, begin, 60)
			d := chosen(t, chooser)
			if d.Chosen != c.want || d.Class != c.class || len(changes) != c.changes {
				t.Errorf("chosen %s for a %s path after %d changes, want %s, %s, %d\n%+v\n%+v", d.Chosen, d.Class, len(changes), c.want, c.class,
					c.changes, d, changes)
			}
		})
	}
}

// Noise is found within two seconds of a flow's start: waiting longer would cost a short transfer all there is to gain.
func TestNoiseIsFoundSoon(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	changes, _ := newNetwork(40, 50*time.Millisecond, 1, 1e-2).run(c, begin, 3)
	if len(changes) != 1 || changes[0].New != "bbr" || changes[0].Old != "tl_illinois" || changes[0].At.Sub(begin) > 2*time.Second {
		t.Errorf("changes: %+v", changes)
	}
}

// A host that is late, or a radio link, makes round trips longer without any queue: noise is noise still.
func TestNoiseBehindJitter(t *testing.T) {
	for _, jitter := range []float64{0.1, 0.2, 0.35} {
		c := New(Options{Candidates: DefaultCandidates})
		n := newNetwork(40, 50*time.Millisecond, 1, 1e-2)
		n.jitter = jitter
		n.run(c, begin, 10)
		if d := chosen(t, c); d.Chosen != "bbr" {
			t.Errorf("jitter of %g round trips: %s for a %s path: %s", jitter, d.Chosen, d.Class, d.Why)
		}
	}
}

// A path that changes under a flow gets another algorithm, there and back, and not more often than that.
func TestAPathThatChanges(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 50*time.Millisecond, 1, 0)
	clean, at := n.run(c, begin, 30)
	n.loss = 1e-2
	noisy, at := n.run(c, at, 30)
	n.loss = 0
	cleanAgain, _ := n.run(c, at, 120)
	if len(clean) != 0 || len(noisy) != 1 || noisy[0].New != "bbr" || len(cleanAgain) != 1 || cleanAgain[0].New != "tl_illinois" {
		t.Errorf("changes: clean %+v\nnoisy %+v\nclean again %+v", clean, noisy, cleanAgain)
	}
	if h := chosen(t, c).History; !slices.Equal(h, append(noisy, cleanAgain...)) {
		t.Errorf("the history is %+v", h)
	}
	if n := c.Chosen(); len(n) != 1 || n["tl_illinois"] != 1 {
		t.Errorf("paths by what is chosen: %v", n)
	}
}

// What ignores losses leaves where they rise far beyond what they were: that is no noise any more, or its own doing.
func TestAFlood(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 50*time.Millisecond, 1, 1e-2)
	_, at := n.run(c, begin, 20)
	n.loss = 0.1
	changes, _ := n.run(c, at, 25)
	if len(changes) == 0 || changes[0].New != "tl_illinois" {
		t.Errorf("changes: %+v", changes)
	}
}

// A path that has become longer has flows begin anew that would take the length for a queue, and once.
func TestALongerPath(t *testing.T) {
	for _, loss := range []float64{1e-3, 4e-3} {
		c := New(Options{Candidates: DefaultCandidates})
		n := newNetwork(40, 20*time.Millisecond, 1, loss)
		_, at := n.run(c, begin, 15)
		n.rtt = 80 * time.Millisecond
		changes, _ := n.run(c, at, 60)
		if len(changes) != 1 || changes[0].New != "tl_illinois" || changes[0].Old != "tl_illinois" || changes[0].At.Sub(at) > 4*time.Second {
			t.Errorf("loss %g: changes: %+v", loss, changes)
		}
		if d := chosen(t, c); d.Renewals != 1 || d.Changes != 0 {
			t.Errorf("loss %g: %+v", loss, d)
		}
	}
}

// Where a queue made round trips as long before, it takes longer to tell.
func TestALongerPathWithinItsQueue(t *testing.T) {
	c := New(Options{Candidates: []string{"tl_illinois", "tl_cubic"}})
	n := newNetwork(40, 50*time.Millisecond, 1, 0)
	_, at := n.run(c, begin, 10)
	n.rtt, n.loss = 80*time.Millisecond, 5e-3
	changes, _ := n.run(c, at, 60)
	if len(changes) != 1 || changes[0].Old != changes[0].New || changes[0].At.Sub(at) < surelySeconds*time.Second || changes[0].At.Sub(at) > 12*time.Second {
		t.Errorf("changes: %+v", changes)
	}
}

// Beside another flow a queue stands for long and the rate is a part of what it was: that path is no longer one.
func TestSharedPath(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(1, seed))
		c := New(Options{Candidates: DefaultCandidates})
		f := Flow{Cookie: 1, Path: here, MSSBytes: packetBytes, Congestion: "tl_illinois", RTTMinUs: 20_000}
		for i := range 120 {
			at := begin.Add(time.Duration(i) * time.Second)
			share := 0.3 + 0.3*rng.Float64()
			if i < 3 {
				share = 1
			}
			f.SRTTUs, f.DeliveredBps = uint32(28_000+12_000*rng.Float64()), uint64(share*5e6)
			f.BytesAcked, f.SegsOut, f.Age = f.BytesAcked+uint64(share*5e6), f.SegsOut+uint32(share*3400), f.Age+time.Second
			if i%4 == 0 {
				f.Retransmits++
				c.Lost(Loss{Cookie: 1, Path: here, At: at, SRTTUs: 39_900, RTTMinUs: 20_000, CwndPackets: 60, DeliveredBps: f.DeliveredBps})
			}
			if ch := c.Tick(at, []Flow{f}); ch != nil {
				t.Fatalf("seed %d: %+v", seed, ch)
			}
		}
	}
}

// The kernel tells the old length to what begins on a live flow, and BBR would believe it. Flows that began since then know better.
func TestALongerAndNoisyPath(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 20*time.Millisecond, 1, 4e-3)
	_, at := n.run(c, begin, 15)
	n.rtt = 80 * time.Millisecond
	_, at = n.run(c, at, 20)
	n.flow.Cookie, n.flow.RTTMinUs, n.flow.Age = 2, 80_000, 0
	n.flow.BytesAcked, n.flow.SegsOut, n.flow.Retransmits = 0, 0, 0
	changes, _ := n.run(c, at, 20)
	if len(changes) != 1 || changes[0].New != "bbr" {
		t.Errorf("changes: %+v\n%+v", changes, c.Decisions())
	}
}

// What was achieved before a path became slower is no measure for what comes after.
func TestASlowerPath(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 50*time.Millisecond, 1, 0)
	_, at := n.run(c, begin, 10)
	n.rateMbps, n.loss = 20, 1e-2
	n.run(c, at, 40)
	if d := chosen(t, c); d.Chosen != "bbr" {
		t.Errorf("%+v", d)
	}
}

// However a path changes, choices change rarely, and less and less often.
func TestFlapping(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 50*time.Millisecond, 1, 0)
	at, total := begin, 0
	for i := range 40 {
		n.loss = []float64{1e-2, 0}[i%2]
		var changes []Change
		changes, at = n.run(c, at, 60)
		for i := 1; i < len(changes); i++ {
			if gap := changes[i].At.Sub(changes[i-1].At); gap < defaultHold {
				t.Errorf("two changes within %v", gap)
			}
		}
		total += len(changes)
	}
	if total < 2 || total > maxChanges {
		t.Errorf("%d changes in 40 minutes, want at most %d", total, maxChanges)
	}
}

// A flow that its application holds back says nothing of the path.
func TestHeldBackByTheApplication(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	f := Flow{Cookie: 1, Path: here, Congestion: "tl_illinois", SRTTUs: 50_000, RTTMinUs: 50_000, DeliveredBps: 5e6}
	for i := range 60 {
		f.BytesAcked += 100_000 // a fiftieth of what arrives at the rate of 5 MB/s
		f.Age += time.Second
		if ch := c.Tick(begin.Add(time.Duration(i)*time.Second), []Flow{f}); ch != nil {
			t.Fatalf("%+v", ch)
		}
	}
	if d := chosen(t, c); d.Class != Unknown {
		t.Errorf("the path counts as %s (%s)", d.Class, d.Why)
	}
}

// What another algorithm achieved on a path outweighs the ranking, if it is much more.
func TestWhatWasAchievedCounts(t *testing.T) {
	for _, c := range []struct {
		bbr  float64 // goodput, beside illinois' 1.0
		want string
	}{{2, "bbr"}, {0.95, "bbr"}, {0.5, "tl_illinois"}} {
		p := &path{learned: map[lesson]result{
			{Random, "bbr"}:      {goodputBps: c.bbr * 1e6, seconds: 30, at: begin},
			{Random, "illinois"}: {goodputBps: 1e6, seconds: 30, at: begin},
		}}
		if name, _ := p.best(begin.Add(time.Hour), DefaultCandidates, Random); name != c.want {
			t.Errorf("bbr with %g of illinois' goodput: %s, want %s", c.bbr, name, c.want)
		}
		if name, _ := p.best(begin.Add(2*lessonAge), DefaultCandidates, Random); name != "bbr" {
			t.Errorf("old results still count: %s", name)
		}
	}
}

// Exploring tries a candidate that nothing is known of, for a hold's time, and only where it is switched on.
func TestExplore(t *testing.T) {
	for _, on := range []bool{false, true} {
		c := New(Options{Candidates: []string{"tl_illinois", "tl_cubic"}, Explore: on})
		changes, _ := newNetwork(40, 50*time.Millisecond, 1, 0).run(c, begin, 15*60)
		if got := len(changes) > 0 && changes[0].New == "tl_cubic" && changes[0].Why == "explored"; got != on {
			t.Errorf("explore %v: %+v", on, changes)
		}
		if !on && len(changes) > 0 {
			t.Errorf("changes though nothing is to be explored: %+v", changes)
		}
	}
}

// What ignores losses is never the prior, and dctcp never anything.
func TestPriorAndCandidates(t *testing.T) {
	for _, c := range []struct {
		candidates []string
		prior      string
	}{
		{DefaultCandidates, "tl_illinois"},
		{[]string{"bbr", "cubic"}, "cubic"},
		{[]string{"bbr"}, "bbr"},
		{[]string{"own", "reno"}, "reno"},
		{[]string{"own"}, "own"},
		{nil, ""},
	} {
		if got := New(Options{Candidates: c.candidates}).Prior(); got != c.prior {
			t.Errorf("%v: prior %q, want %q", c.candidates, got, c.prior)
		}
	}
	if CheckCandidate("dctcp") == nil || CheckCandidate("tl_dctcp") == nil || CheckCandidate("bbr") != nil {
		t.Error("dctcp must be refused, and bbr not")
	}
}

// A candidate that is gone is replaced at the next tick.
func TestReconfigured(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	n := newNetwork(40, 50*time.Millisecond, 1, 1e-2)
	_, at := n.run(c, begin, 10)
	c.Configure(Options{Candidates: []string{"tl_cubic", "tl_illinois"}})
	changes, _ := n.run(c, at, 30)
	if len(changes) != 1 || changes[0].Old != "bbr" || changes[0].New != "tl_illinois" {
		t.Errorf("changes: %+v", changes)
	}
	c.Configure(Options{})
	if ch := c.Tick(at.Add(time.Hour), []Flow{n.flow}); ch != nil || c.Prior() != "" {
		t.Errorf("without candidates: %+v", ch)
	}
}

// A restart keeps what was learned; what is too old, broken or of a time to come is left out.
func TestRecords(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	_, at := newNetwork(40, 50*time.Millisecond, 1, 1e-2).run(c, begin, 30)
	kept := c.Records()
	again := New(Options{Candidates: DefaultCandidates})
	again.Restore(at.Add(time.Hour), kept)
	if d, was := chosen(t, again), chosen(t, c); d.Chosen != "bbr" || d.Why != was.Why || d.Class != was.Class || !d.Since.Equal(was.Since) {
		t.Errorf("restored %+v, was %+v", d, was)
	}
	p := again.paths[here]
	if r := p.learned[lesson{Random, "bbr"}]; r.seconds < 20 || math.Abs(r.goodputBps-4.7e6) > 0.4e6 {
		t.Errorf("bbr's result: %+v", r)
	}
	for name, r := range map[string]Record{
		"old":      {Path: here, Updated: at, Class: Random},
		"to come":  {Path: here, Updated: at.Add(RecordAge + 3*time.Hour), Class: Random},
		"no path":  {Updated: at.Add(RecordAge), Class: Random},
		"no class": {Path: here, Updated: at.Add(RecordAge), Class: "odd"},
	} {
		c := New(Options{Candidates: DefaultCandidates})
		c.Restore(at.Add(RecordAge+2*time.Hour), []Record{r})
		if d := c.Decisions(); len(d) != 0 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// The memory is bounded.
func TestManyPaths(t *testing.T) {
	c := New(Options{Candidates: DefaultCandidates})
	for i := range maxPaths + 2000 {
		p := Path{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}
		c.Tick(begin.Add(time.Duration(i)*time.Second), []Flow{{Cookie: uint64(i), Path: p}})
	}
	if n := len(c.Decisions()); n > maxPaths || n < maxPaths*7/8 {
		t.Errorf("%d paths are remembered", n)
	}
}
