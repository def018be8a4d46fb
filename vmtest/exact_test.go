// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// routed is two namespaces joined by a third that routes between them, over links whose queues are the kernel's own.
type routed struct {
	router *lab.Site
	c, s   *lab.Namespace
	cAddr  netip.Addr
	sAddr  netip.Addr
}

// The router's devices: whoever leaves by toServer has come from the client.
const (
	toClient = "inner1"
	toServer = "inner2"
)

func newRouted(t *testing.T) *routed {
	t.Helper()
	testkit.NeedRoot(t)
	l, err := lab.New(lab.Options{NoIPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	r := &routed{router: l.A}
	for _, end := range []struct {
		ns   **lab.Namespace
		addr *netip.Addr
	}{{&r.c, &r.cAddr}, {&r.s, &r.sAddr}} {
		if *end.ns, *end.addr, err = l.A.NewNamespace(); err != nil {
			t.Fatal(err)
		}
		r.tool(t, *end.ns, "ip", "link set eth0 gso_max_segs 1")
	}
	// Queues count what they are given: a super-packet would be one loss of up to 64 KB.
	for _, dev := range []string{toClient, toServer} {
		r.tool(t, l.A.Namespace, "ip", "link set "+dev+" gso_max_segs 1")
	}
	return r
}

// tool runs a program in a namespace and returns what it printed.
func (r *routed) tool(t *testing.T, in *lab.Namespace, name, args string) string {
	t.Helper()
	out, err := r.try(t, in, name, args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *routed) try(t *testing.T, in *lab.Namespace, name, args string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Wait(2*time.Minute))
	defer cancel()
	out, err := in.Output(in.Command(ctx, testkit.NeedProgram(t, name), strings.Fields(args)...))
	return string(out), err
}

// qdisc puts a queueing discipline on a device of the router, or skips the test where the kernel has none of the kind.
func (r *routed) qdisc(t *testing.T, kind, args string) {
	t.Helper()
	if _, err := r.try(t, r.router.Namespace, "tc", "qdisc add "+args); err != nil {
		if strings.Contains(err.Error(), "Specified qdisc kind is unknown") || strings.Contains(err.Error(), "qdisc not found") {
			testkit.NeedFeature(t, kind, errors.New("the kernel does not know this queueing discipline"))
		}
		t.Fatal(err)
	}
}

func (r *routed) tc(t *testing.T, args string) string {
	t.Helper()
	return r.tool(t, r.router.Namespace, "tc", args)
}

// needExact skips what is judged by tight bounds, unless the clock counts instructions.
func needExact(t *testing.T) {
	t.Helper()
	if !testkit.Exact() {
		testkit.NeedFeature(t, "exact-time", errors.New("the clock is that of a machine which others use too"))
	}
}

// iperf is what the tests read of iperf3's report.
type iperf struct {
	Error string `json:"error"`
	End   struct {
		Received struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
		Sum struct {
			Packets     float64 `json:"packets"`
			LostPercent float64 `json:"lost_percent"`
		} `json:"sum"`
	} `json:"end"`
}

// iperf3 sends from the client to the server.
func (r *routed) iperf3(t *testing.T, args string) iperf {
	t.Helper()
	server, err := r.s.Start(exec.Command(testkit.NeedProgram(t, "iperf3"), "-s", "-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Kill()
		_ = server.Wait()
	}()
	for end := time.Now().Add(testkit.Wait(10 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		var got iperf // anew: what an attempt does not say must not be an earlier one's
		out, err := r.try(t, r.c, "iperf3", "-J -c "+r.sAddr.String()+" "+args)
		if err == nil && json.Unmarshal([]byte(out), &got) == nil && got.Error == "" {
			return got
		}
		if time.Now().After(end) || !strings.Contains(out, "refused") { // it may not listen yet
			t.Fatalf("iperf3: %v: %s", err, out)
		}
	}
}

// connectTime is the shortest of some round trips.
func (r *routed) connectTime(t *testing.T) time.Duration {
	t.Helper()
	ln, err := r.s.Listen("tcp", net.JoinHostPort(r.sAddr.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	best := time.Hour
	for range 5 {
		start := time.Now()
		c, err := r.c.Dial(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(start))
		c.Close()
	}
	return best
}

func wantBetween(t *testing.T, what string, got, low, high float64) {
	t.Helper()
	t.Logf("%s: %.4g, want %.4g to %.4g", what, got, low, high)
	if got < low || got > high {
		t.Errorf("%s: %.4g, want %.4g to %.4g", what, got, low, high)
	}
}

// tcpShare is what of a link's bits is TCP's payload: 1448 bytes of 1514, which is what queues count on ethernet.
const tcpShare = 1448.0 / 1514

func TestExactNetem(t *testing.T) {
	needExact(t)
	r := newRouted(t)
	const rate = 10e6
	// The limit counts what is under way too: 1 BDP and a queue of 1 BDP.
	r.qdisc(t, "netem", "dev "+toServer+" root netem rate 10mbit delay 50ms limit 84")
	wantBetween(t, "round trip in ms", r.connectTime(t).Seconds()*1e3, 50, 52)
	got := r.iperf3(t, "-t 10 -O 2 -C cubic")
	wantBetween(t, "goodput in Mbit/s", got.End.Received.BitsPerSecond/1e6, 0.97*rate*tcpShare/1e6, 1.005*rate*tcpShare/1e6)
	r.tc(t, "qdisc replace dev "+toServer+" root netem delay 5ms loss 2% limit 1000")
	got = r.iperf3(t, "-u -b 8M -l 1000 -t 8")
	if got.End.Sum.Packets < 7000 {
		t.Fatalf("%.0f datagrams sent, want 8,000", got.End.Sum.Packets)
	}
	wantBetween(t, "loss in percent", got.End.Sum.LostPercent, 1.4, 2.6) // 4 standard deviations of 8,000
}

func TestExactHTB(t *testing.T) {
	needExact(t)
	r := newRouted(t)
	const rate = 8e6
	r.qdisc(t, "htb", "dev "+toServer+" root handle 1: htb default 1")
	r.tc(t, "class add dev "+toServer+" parent 1: classid 1:1 htb rate 8mbit burst 15k")
	got := r.iperf3(t, "-t 8 -O 2 -C cubic")
	wantBetween(t, "goodput in Mbit/s", got.End.Received.BitsPerSecond/1e6, 0.97*rate*tcpShare/1e6, 1.01*rate*tcpShare/1e6)
}

// The lab's own emulator is as exact as the clock.
func TestExactLab(t *testing.T) {
	needExact(t)
	const rate, rtt = 20e6, 40 * time.Millisecond
	l, err := lab.New(lab.Options{Rate: rate, RTT: rtt, NoIPv6: true, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &routed{router: l.A, c: l.A.Namespace, s: l.B.Namespace, cAddr: l.A.Addr4, sAddr: l.B.Addr4}
	wantBetween(t, "round trip in ms", r.connectTime(t).Seconds()*1e3, 40, 43)
	got := r.iperf3(t, "-t 8 -O 2 -C cubic")
	const share = 1448.0 / 1500 // it counts IP packets
	wantBetween(t, "goodput in Mbit/s", got.End.Received.BitsPerSecond/1e6, 0.96*rate*share/1e6, 1.005*rate*share/1e6)
	before := l.Link.AB.Stats()
	l.Link.SetLoss(0.02)
	r.iperf3(t, "-u -b 8M -l 1000 -t 8")
	st := l.Link.AB.Stats().Since(before)
	wantBetween(t, "loss in percent", float64(st.Lost)/float64(st.Segments)*100, 1.4, 2.6)
	t.Logf("late on average %v, at most %v", st.LateAvg(), st.LateMax)
}

// bottleneck is htb of 4 Mbit/s towards the server, with a place for a queue at 1:1.
func (r *routed) bottleneck(t *testing.T) {
	t.Helper()
	r.qdisc(t, "htb", "dev "+toServer+" root handle 1: htb default 1")
	r.tc(t, "class add dev "+toServer+" parent 1: classid 1:1 htb rate 4mbit burst 15k")
	r.qdisc(t, "netem", fmt.Sprintf("dev %s root netem delay 20ms limit 1000", toClient)) // acknowledgements: a round trip to fill
}
