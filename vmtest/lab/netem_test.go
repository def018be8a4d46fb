// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

func needNetem(t *testing.T) {
	t.Helper()
	testkit.NeedRoot(t)
	testkit.NeedFeature(t, "netem", HaveNetem())
}

// download has site A fetch bytes from an address of B, and returns how long it took from the first byte on.
func download(t *testing.T, l *Lab, addr netip.Addr, bytes int) time.Duration {
	t.Helper()
	to := serve(t, l, addr, func(c net.Conn) { _, _ = c.Write(make([]byte, bytes)) })
	return receive(t, dial(t, l, to), bytes)
}

func receive(t *testing.T, c net.Conn, bytes int) time.Duration {
	t.Helper()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if n, err := io.Copy(io.Discard, c); err != nil || n != int64(bytes)-1 {
		t.Fatalf("%d of %d bytes arrived: %v", n+1, bytes, err)
	}
	return time.Since(start)
}

// upload has site A send bytes to an address of B, and returns how long they took to arrive, from the first on.
func upload(t *testing.T, l *Lab, addr netip.Addr, bytes int) time.Duration {
	t.Helper()
	took := make(chan time.Duration, 1)
	to := serve(t, l, addr, func(c net.Conn) { took <- receive(t, c, bytes) })
	c := dial(t, l, to)
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-took:
		return d
	case <-time.After(testkit.Wait(5 * time.Minute)):
		t.Fatal("the bytes do not arrive")
	}
	return 0
}

// connectTime is the best of some.
func connectTime(t *testing.T, l *Lab, addr netip.Addr) time.Duration {
	t.Helper()
	to := serve(t, l, addr, func(net.Conn) {})
	best := time.Hour
	for range 5 {
		start := time.Now()
		dial(t, l, to).Close()
		best = min(best, time.Since(start))
	}
	return best
}

func between[N int | uint64 | float64 | time.Duration](t *testing.T, what string, got, low, high N) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s is %v, not from %v to %v", what, got, low, high)
	}
	t.Logf("%s: %v", what, got)
}

func TestNetemLinkExact(t *testing.T) {
	const rate, rtt, bytes = 20e6, 40 * time.Millisecond, 10 << 20
	needNetem(t)
	testkit.NeedTime(t)
	l := newLab(t, Options{Emulation: InKernel, Rate: rate, RTT: rtt, QueueBDP: 2})
	families(t, l, func(t *testing.T, b netip.Addr) {
		between(t, "connect time", connectTime(t, l, b), rtt, rtt+2*time.Millisecond)
		headers := 52.0
		if b.Is6() {
			headers += 20
		}
		share := (wanMTU - headers) / wanMTU // it counts IP packets
		got := bytes * 8 / download(t, l, b, bytes).Seconds()
		// Beside the rate there is the slow start, and an overshoot of it that overflows the queue.
		between(t, "Mbit/s", got/1e6, 0.8*rate*share/1e6, 1.005*rate*share/1e6)
	})
	l.Link.SetRTT(10 * time.Millisecond)
	l.Link.SetRate(5e6)
	between(t, "connect time", connectTime(t, l, l.B.Addr4), 10*time.Millisecond, 12*time.Millisecond)
	got := bytes / 4 * 8 / download(t, l, l.B.Addr4, bytes/4).Seconds()
	between(t, "Mbit/s at a quarter", got/1e6, 0.8*5*1448/1500, 1.005*5*1448/1500)
}

// The queue is as long as asked for, beside what the delay holds.
func TestNetemQueueExact(t *testing.T) {
	const rate, rtt, queue = 10e6, 50 * time.Millisecond, 90e3
	needNetem(t)
	testkit.NeedTime(t)
	l := newLab(t, Options{Emulation: InKernel, Rate: rate, RTT: rtt, QueueBytes: queue, OneWay: true, NoIPv6: true})
	const n = 1000
	worst := worstDelay(t, l, n, 600*time.Microsecond) // twice the rate
	full := rtt + time.Duration(queue*8/rate*1e9)
	between(t, "delay with a full queue", worst, full-3*time.Millisecond, full+3*time.Millisecond)
	st := l.Link.AB.Stats()
	// netem counts what the router itself sends to B, too: a few packets of its own housekeeping.
	if own := int(st.QueueDrops+st.Delivered) - n; st.QueueDrops < n/3 || st.Lost != 0 || st.Packets != n || own < 0 || own > 10 {
		t.Errorf("%+v", st)
	}
}

// worstDelay sends n full packets to B, one in each interval, and returns the longest time that one took.
func worstDelay(t *testing.T, l *Lab, n int, interval time.Duration) (worst time.Duration) {
	t.Helper()
	to, from := datagrams(t, l)
	start := time.Now()
	go func() {
		b := make([]byte, wanMTU-28)
		for i := range n {
			time.Sleep(time.Until(start.Add(time.Duration(i) * interval)))
			binary.BigEndian.PutUint64(b, uint64(time.Since(start)))
			_, _ = from.Write(b)
		}
	}()
	buf := make([]byte, wanMTU)
	for {
		_ = to.SetReadDeadline(time.Now().Add(testkit.Wait(time.Second)))
		if _, _, err := to.ReadFrom(buf); err != nil {
			return worst
		}
		worst = max(worst, time.Since(start)-time.Duration(binary.BigEndian.Uint64(buf)))
	}
}

func TestNetemShape(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		ab   netemShape
		ba   netemShape
	}{
		{"a queue of one bandwidth-delay product behind half the delay", Options{Rate: 12e6, RTT: 100 * time.Millisecond, QueueBDP: 1},
			netemShape{1.5e6, 50 * time.Millisecond, 50 + 100}, netemShape{1.5e6, 50 * time.Millisecond, 50 + 100}},
		{"one way", Options{Rate: 12e6, RTT: 100 * time.Millisecond, QueueBDP: 2, OneWay: true},
			netemShape{1.5e6, 100 * time.Millisecond, 100 + 200}, netemShape{1.5e6, 0, 200}},
		{"packets of 9000 bytes", Options{Rate: 12e6, RTT: 120 * time.Millisecond, MTU: 9000},
			netemShape{1.5e6, 60 * time.Millisecond, 10 + 20}, netemShape{1.5e6, 60 * time.Millisecond, 10 + 20}},
		{"bytes", Options{Rate: 12e6, RTT: 100 * time.Millisecond, QueueBDP: 2, QueueBytes: 45000, OneWay: true},
			netemShape{1.5e6, 100 * time.Millisecond, 100 + 30}, netemShape{1.5e6, 0, 30}},
		{"never below the least queue", Options{Rate: 1e6, QueueBytes: 1}, netemShape{125e3, 0, 20}, netemShape{125e3, 0, 20}},
		{"never without rate", Options{Rate: 1, QueueBDP: 1}, netemShape{1, 0, 20}, netemShape{1, 0, 20}},
	} {
		ab, ba := c.o.withDefaults().shapes()
		if ab.netem() != c.ab || ba.netem() != c.ba {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", c.name, ab.netem(), ba.netem(), c.ab, c.ba)
		}
	}
}
