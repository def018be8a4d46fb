// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bufio"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

const reservedAgentEnv = "TL_TEST_RESERVED_LEDGER"

// What a killed agent leaves on flows, the ledger knows, and cleanup takes away; an application's own rate stays.
func TestReservedAgentKilled(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		path := os.Getenv(reservedAgentEnv)
		if path != "" {
			reservedAgent(t, s, path)
			return
		}
		path = t.TempDir() + "/ledger"
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), reservedAgentEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the agent says %q: %v", line, err)
		}
		flow := dialAt(t, s.B4, sinkPort)
		sendOnly(t, flow, 1000)
		other := dialAt(t, s.B4, idlePort)
		const own = 1<<20 + 7
		option(t, other, func(fd int) (struct{}, error) {
			return struct{}{}, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, own)
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // "signal: killed"
		if paceOf(t, flow) == noRate {
			t.Error("the flow had no rate")
		}
		led, err := ledger.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer led.Close()
		results, err := led.Undo(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("cleanup: %v %v", results, err)
		}
		if got := paceOf(t, flow); got != noRate {
			t.Errorf("rate %d after cleanup", got)
		}
		if got := paceOf(t, other); got != own {
			t.Errorf("an application's own rate became %d", got)
		}
		transfer(t, flow, 1<<20)
	}, nil)
}

// reservedAgent keeps a reservation in force until it is killed.
func reservedAgent(t *testing.T, s site, path string) {
	led, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Ledger: led, Rules: []policy.Rule{
		{ID: 1, Name: "path", Remote: full(s.B4), Ports: []uint16{sinkPort}, Window: policy.WindowReserved}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve([]policy.Reserved{reserved(s.B4, 40e6, 20*time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

// A leg that takes up a flow of a rule with window: reserved comes under the reservation, and so do flows from before it.
func TestReservedLegAndLate(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		l := loadAt(t, s,
			policy.Rule{ID: 1, Name: "path", Remote: full(s.B4), Ports: []uint16{sinkPort}, Window: policy.WindowReserved},
			policy.Rule{ID: 2, Name: "carried", Remote: full(s.B4), Ports: []uint16{80}, Window: policy.WindowReserved, PeerID: 1})
		late := dialAt(t, s.B4, sinkPort)
		keepSending(t, late)
		f := flowOf(t, l, late, func(f Flow) bool { return f.State == "established" && f.WindowWhy != "" })
		if f.Reservation != "" || f.Window != "reserved" {
			t.Errorf("without a reservation: %+v", f)
		}
		leg := dialOwn(t, l, s.B4, true)
		cookie := option(t, leg, func(fd int) (uint64, error) { return cookieOf(t, fd), nil })
		if err := l.Own(cookie, 2, true); err != nil {
			t.Fatal(err)
		}
		keepSending(t, leg)
		reserve(t, l, reserved(s.B4, 40e6, 20*time.Millisecond))
		for _, c := range []*net.TCPConn{late, leg} {
			comes(t, "a rate", func() bool { return paceOf(t, c) != noRate })
			f := flowOf(t, l, c, func(f Flow) bool { return f.Reservation == "r-1" })
			if f.Window != "reserved" || f.WindowWhy == "" {
				t.Errorf("late: %+v", f)
			}
		}
	}, nil)
}

// An idle path of a short round trip and a queue that holds: what auto lifts is seen in the maxima alone.
func TestAutoWindow(t *testing.T) {
	inside(t, lab.Options{Rate: 100e6, RTT: 40 * time.Millisecond}, func(t *testing.T, s site) {
		before := maximaNow(t)
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "path", Remote: full(s.B4), Window: policy.WindowAuto, Congestion: "cubic"})
		for _, name := range []string{tcpRmem, tcpWmem} {
			if _, most, err := maximum(name); err != nil || most < autoMaximumMin {
				t.Errorf("%s: %d %v", name, most, err)
			}
		}
		first := dialAt(t, s.B4, sinkPort)
		if f := flowOf(t, l, first, established); f.Window != "auto" || f.WindowWhy == "" || f.InitialPackets != 0 {
			t.Errorf("on a path that nobody measured: %+v", f)
		}
		transfer(t, first, 8<<20)
		next := dialAt(t, s.B4, sinkPort)
		f := flowOf(t, l, next, established)
		t.Logf("the next: initial packets %d, %s", f.InitialPackets, f.WindowWhy)
		if f.InitialPackets == 0 && f.WindowWhy == "" {
			paths, _ := l.Paths()
			t.Logf("paths: %+v", paths)
		}
		if f.InitialPackets > 64 {
			t.Errorf("initial window %d", f.InitialPackets)
		}
		transfer(t, next, 1<<20)
		if err := l.Apply(nil, nil); err != nil {
			t.Fatal(err)
		}
		if after := maximaNow(t); after != before {
			t.Errorf("maxima %v, they were %v", after, before)
		}
	}, nil)
}
