// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func ms(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

func TestJudge(t *testing.T) {
	probe := netip.MustParseAddrPort("10.0.0.1:443")
	for _, c := range []struct {
		name    string
		given   time.Duration
		samples []float64 // ms by probe; 0: silence
		rtt     float64
		problem string
	}{
		{"first", 0, []float64{135}, 135, ""},
		{"jitter stays", 0, []float64{135, 150, 118, 154}, 135, ""},
		{"given, then measured", ms(100), []float64{135}, 135, ""},
		{"never answered", 0, []float64{0, 0, 0, 0, 0}, 0, ""},
		{"two off are nothing", 0, []float64{135, 200, 200, 135}, 135, ""},
		{"out of its band", 0, []float64{135, 200, 200, 200}, 135, "its round-trip time is 200ms, out of the band of 115ms to 155ms"},
		{"shorter, too", 0, []float64{135, 50, 50, 50}, 135, "its round-trip time is 50ms"},
		{"back in its band", 0, []float64{135, 200, 200, 200, 136}, 135, ""},
		{"another path", 0, []float64{135, 200, 201, 202, 203, 199, 201, 200, 202}, 199, ""},
		{"not while it wanders", 0, []float64{135, 200, 300, 200, 300, 200, 300, 200, 300, 200, 300}, 135, "out of the band"},
		{"silent for a moment", 0, []float64{135, 0, 0, 135, 0, 0}, 135, ""},
		{"lost", 0, []float64{135, 0, 0, 0}, 135, "the path is lost: no connection, and 10.0.0.1:443 answers no probe"},
		{"lost and back", 0, []float64{135, 0, 0, 0, 0, 135}, 135, ""},
		{"a short path's band", 0, []float64{1, 2.5, 2.9, 2.9}, 1, ""},
		{"lost, and back as another", 0, []float64{135, 0, 0, 0, 80, 80, 80, 80, 80, 80, 80, 80}, 80, ""},
	} {
		e := EndPoint{Remote: netip.MustParsePrefix("10.0.0.0/8"), Probe: probe, RTTus: c.given.Microseconds(), Given: c.given > 0}
		w := &watch{}
		for _, m := range c.samples {
			w.judge(&e, sample{rtt: ms(m), source: fromProbe, silent: m == 0}, 0, time.Unix(0, 0))
		}
		if e.RTT() != ms(c.rtt) || c.problem == "" && e.Problem != "" || !strings.Contains(e.Problem, c.problem) {
			t.Errorf("%s: %s, problem %q; want %v ms, %q", c.name, e.RTT(), e.Problem, c.rtt, c.problem)
		}
	}
}

func TestSampleOf(t *testing.T) {
	in, out := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("11.0.0.1")
	e := EndPoint{Remote: netip.MustParsePrefix("10.0.0.0/8"), RTTus: 100_000}
	for _, c := range []struct {
		name   string
		all    []Connection
		want   time.Duration
		queued bool
	}{
		{"none", nil, 0, false},
		{"elsewhere", []Connection{{Remote: out, MinRTT: ms(5)}}, 0, false},
		{"the least", []Connection{{Remote: in, MinRTT: ms(105), SRTT: ms(300)}, {Remote: in, MinRTT: ms(103), SRTT: ms(104)}}, ms(103), false},
		{"a young one knows better than an old one", []Connection{{Remote: in, Age: time.Hour, MinRTT: ms(100), SRTT: ms(200)}, {Remote: in, MinRTT: ms(190), SRTT: ms(200)}}, ms(190), true},
		{"idle", []Connection{{Remote: in, Idle: time.Hour, MinRTT: ms(100)}}, 0, false},
		{"not measured", []Connection{{Remote: in}}, 0, false},
		{"queue", []Connection{{Remote: in, Age: time.Hour, MinRTT: ms(100), SRTT: ms(180)}}, ms(100), true},
	} {
		got, queued := sampleOf(c.all, e, 0)
		if got.rtt != c.want || queued != c.queued {
			t.Errorf("%s: %s, queued %v", c.name, got.rtt, queued)
		}
	}
}

func newKeeper(t *testing.T, b *Book, k *recorder, p fakeProber) *Keeper {
	t.Helper()
	return NewKeeper(b, k, p, testLog(t))
}

// A path that is lost, and one that is longer, go back to auto and return; all of it is to be seen.
func TestRestoration(t *testing.T) {
	c := newClock()
	b := newBook(t, c, &memoryStore{}, Policy{ProbePort: 443})
	k, target := &recorder{}, netip.MustParseAddrPort("203.0.113.9:443")
	prober := fakeProber{target: ms(135)}
	keeper := newKeeper(t, b, k, prober)
	look := func(n int) {
		for range n {
			c.pass(lookEvery)
			keeper.Watch(context.Background())
			keeper.Enforce()
		}
	}
	r := mustAdd(t, b, Request{Remote: []string{"203.0.113.9"}, Rate: "1Gbit", For: "2h"}, root)
	if r.State != Suspended || !strings.Contains(r.Reason, "not known yet") {
		t.Errorf("%s: %s", r.State, r.Reason)
	}
	look(1)
	if len(k.inForce) != 1 || k.inForce[0].BDPBytes() != 16_875_000 {
		t.Fatalf("not in force: %+v", k.inForce)
	}
	calls := k.calls
	look(3)
	if k.calls != calls {
		t.Errorf("%d calls for nothing", k.calls-calls)
	}
	prober[target] = 0
	look(3)
	if r, _ = b.Get(r.ID); len(k.inForce) != 0 || r.State != Suspended || !strings.Contains(r.Reason, "203.0.113.9/32: the path is lost") {
		t.Errorf("lost: %+v, %s, %s", k.inForce, r.State, r.Reason)
	}
	prober[target] = ms(136)
	look(1)
	if r, _ = b.Get(r.ID); len(k.inForce) != 1 || k.inForce[0].RTT != ms(135) || r.State != Active || r.Reason != "" {
		t.Errorf("back: %+v, %s, %s", k.inForce, r.State, r.Reason)
	}
	prober[target] = ms(60)
	look(3)
	if len(k.inForce) != 0 {
		t.Errorf("off: %+v", k.inForce)
	}
	look(5)
	if r, _ = b.Get(r.ID); len(k.inForce) != 1 || k.inForce[0].RTT != ms(60) || r.EndPoints[0].Count != 1 {
		t.Errorf("another path: %+v, %+v", k.inForce, r.EndPoints)
	}
}

// Of several end points those whose path is as reserved are in force.
func TestSeveralEndPoints(t *testing.T) {
	c := newClock()
	b := newBook(t, c, &memoryStore{}, Policy{ProbePort: 443})
	k := &recorder{connections: []Connection{{Remote: netip.MustParseAddr("198.51.100.5"), MinRTT: ms(40), SRTT: ms(41)}}}
	keeper := newKeeper(t, b, k, fakeProber{netip.MustParseAddrPort("203.0.113.9:443"): ms(90)})
	r := mustAdd(t, b, Request{Remote: []string{"203.0.113.9", "198.51.100.0/24", "192.0.2.1"}, Rate: "1Gbit", For: "2h"}, root)
	keeper.Watch(context.Background())
	keeper.Enforce()
	if len(k.inForce) != 1 || len(k.inForce[0].Remote) != 2 || k.inForce[0].RTT != ms(90) {
		t.Errorf("%+v", k.inForce)
	}
	r, _ = b.Get(r.ID)
	if e := r.EndPoints[1]; e.Source != "flows" || e.RTT() != ms(40) || e.Count != 1 {
		t.Errorf("%+v", e)
	}
	if e := r.EndPoints[2]; e.RTTus != 0 || r.State != Active {
		t.Errorf("%+v, %s", e, r.State)
	}
}
