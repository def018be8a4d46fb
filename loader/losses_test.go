// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// A lossReader keeps what Losses gives.
type lossReader struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	mu     sync.Mutex
	got    []Loss
}

// readLosses begins to read the loss events.
func readLosses(t *testing.T, l *Loader) *lossReader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &lossReader{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() {
		r.done <- l.Losses(ctx, func(e Loss) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.got = append(r.got, e)
		})
	}()
	return r
}

func (r *lossReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// end returns what came, when no more comes: what is in the ring comes at once.
func (r *lossReader) end() []Loss {
	r.t.Helper()
	for n := -1; n != r.count(); time.Sleep(testkit.Wait(50 * time.Millisecond)) {
		n = r.count()
	}
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
	return r.got
}

// A window with losses is one event, and the events of auto flows arrive.
func TestLossEvents(t *testing.T) {
	const rtt = 20 * time.Millisecond
	inside(t, lab.Options{Rate: 50e6, RTT: rtt, Loss: 0.01, Seed: 7}, func(t *testing.T, s site) {
		for _, b := range s.dests() {
			t.Run(pathOf(b).String(), func(t *testing.T) { lossEvents(t, s, b, rtt) })
		}
	}, nil)
}

func lossEvents(t *testing.T, s site, b netip.Addr, rtt time.Duration) {
	n := int(testkit.Size(4<<20, 1<<20))
	l := loadAt(t, s,
		policy.Rule{ID: 1, Name: "auto", Remote: allOf(b), Congestion: "cubic", Auto: true},
		policy.Rule{ID: 2, Name: "fixed", Remote: pathOf(b), Ports: []uint16{idlePort}, Congestion: "cubic"})
	began, losses := time.Now(), readLosses(t, l)
	c, fixed := dialAt(t, b, sinkPort), dialAt(t, b, idlePort)
	var f, other Flow
	for _, x := range []struct {
		c *net.TCPConn
		f *Flow
	}{{c, &f}, {fixed, &other}} {
		sendOnly(t, x.c, n)
		allAcked(t, x.c)
		*x.f = flowOf(t, l, x.c, func(f Flow) bool { return f.BytesAcked >= uint64(n)*9/10 })
	}
	got := losses.end()
	for _, f := range []Flow{f, other} {
		if f.LossEvents == 0 || f.LossEvents > f.Retransmits {
			t.Errorf("%d loss events and %d retransmissions: %+v", f.LossEvents, f.Retransmits, f)
		}
	}
	t.Logf("%d loss events, %d retransmissions", f.LossEvents, f.Retransmits)
	if dropped, err := l.LossesDropped(); len(got) != int(f.LossEvents) || dropped != 0 || err != nil {
		t.Errorf("%d events arrived, %d were dropped, %v; the flow had %d", len(got), dropped, err, f.LossEvents)
	}
	for i, e := range got {
		if e.Cookie != f.Cookie || e.Path != pathOf(b) || e.PeerID != 0 || e.RuleID != 1 || e.At.Before(began) || e.At.After(time.Now()) ||
			e.RTTMinUs < 18_000 || e.RTTMinUs > e.SRTTUs*2 || e.SRTTUs > 2_000_000 || e.CwndPackets < 2 || e.CwndPackets > 10_000 ||
			e.DeliveredBps > 50e6 || e.SegsOut == 0 || int(e.Retransmits) < i+1 || e.BytesAcked > uint64(n)+1 {
			t.Errorf("implausible: %+v", e)
		}
		if i == 0 {
			continue
		}
		before := got[i-1]
		if e.BytesAcked <= before.BytesAcked || e.At.Sub(before.At) < rtt*9/10 || e.DeliveredBps == 0 {
			t.Errorf("not of another window: %+v after %+v", e, before)
		}
	}
}

// allAcked waits until everything written is acknowledged.
func allAcked(t *testing.T, c *net.TCPConn) {
	t.Helper()
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if option(t, c, func(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }) == 0 {
			return
		}
	}
	t.Fatal("not all is acknowledged")
}

// With nobody reading, events beyond the ring's room are counted, flows go on, and a reader gets what there was room for.
func TestLossEventsBeyondRoom(t *testing.T) {
	const room, record = 4096, 88 // of an event with its header
	inside(t, lab.Options{Rate: 100e6, RTT: 2 * time.Millisecond, Loss: 0.03, Seed: 7}, func(t *testing.T, s site) {
		l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
			lossBytes: uint32(max(room, os.Getpagesize())),
			Rules:     []policy.Rule{{ID: 1, Name: "auto", Remote: allOf(s.B4), Congestion: "cubic", Auto: true}}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		fits, events := max(room, os.Getpagesize())/record, 0
		var flows []*net.TCPConn
		for range 8 {
			flows = append(flows, dialAt(t, s.B4, idlePort))
		}
		for end := time.Now().Add(testkit.Wait(20 * time.Second)); events <= fits && time.Now().Before(end); {
			var wg sync.WaitGroup
			for _, c := range flows {
				wg.Go(func() { sendOnly(t, c, 100_000) })
			}
			wg.Wait()
			events = 0
			for _, c := range flows {
				allAcked(t, c)
				events += int(flowOf(t, l, c, func(Flow) bool { return true }).LossEvents)
			}
		}
		losses := readLosses(t, l)
		for end := time.Now().Add(testkit.Wait(20 * time.Second)); losses.count() == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if err := l.Losses(t.Context(), func(Loss) {}); err == nil {
			t.Error("a second reader is let in")
		}
		got := losses.end()
		dropped, err := l.LossesDropped()
		if err != nil || len(got) < fits-1 || len(got) > fits || dropped == 0 || len(got)+int(dropped) != events {
			t.Errorf("%d events, %d arrived of %d for which there was room, %d dropped, %v", events, len(got), fits, dropped, err)
		}
		last := map[uint64]time.Time{} // by flow: two processors' events may pass each other between the clock and the ring
		for i, e := range got {
			if e.At.Before(last[e.Cookie]) {
				t.Errorf("event %d of %d: flow %d had one at %v, and now one at %v", i, len(got), e.Cookie, last[e.Cookie], e.At)
			}
			last[e.Cookie] = e.At
		}
		if again := readLosses(t, l).end(); len(again) > 0 {
			t.Errorf("read once more: %+v", again)
		}
	}, nil)
}
