// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) { w.t.Log(string(p)); return len(p), nil }

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(logWriter{t}, nil)) }

func TestEnforce(t *testing.T) {
	c, s, k := newClock(), &memoryStore{}, &recorder{}
	b := newBook(t, c, s, Policy{})
	keeper := newKeeper(t, b, k, nil)
	step := func(want string) {
		t.Helper()
		keeper.Enforce()
		if got := k.ids(); got != want {
			t.Errorf("in force: %q, want %q", got, want)
		}
	}
	step("")
	if k.calls != 1 {
		t.Errorf("%d calls at the start, want one: nothing of another agent stays", k.calls)
	}
	mustAdd(t, b, plain("10.0.0.0/8"), root)
	later := plain("11.0.0.0/8")
	later.Start = "+1h"
	mustAdd(t, b, later, root)
	step("r1 ")
	c.pass(time.Hour)
	step("r1 r2 ")
	c.pass(time.Hour)
	step("r2 ")
	if _, err := b.Change("r2", Request{Rate: "2Gbit"}, root); err != nil {
		t.Fatal(err)
	}
	step("r2 ")
	if k.inForce[0].RateBps != 250e6 {
		t.Errorf("%+v", k.inForce)
	}
	k.fail = errDisk
	if _, err := b.End("r2", root); err != nil {
		t.Fatal(err)
	}
	step("r2 ")
	if keeper.Problem() != errDisk.Error() {
		t.Errorf("problem %q", keeper.Problem())
	}
	k.fail = nil
	step("") // tried again
	if keeper.Problem() != "" {
		t.Errorf("problem %q", keeper.Problem())
	}
	calls := k.calls
	step("")
	if k.calls != calls {
		t.Error("the kernel is told again what it has")
	}
}

// Run does it without being asked.
func TestRun(t *testing.T) {
	b := newBook(t, SystemClock(), &memoryStore{}, Policy{})
	k := &recorder{use: []Use{{ID: "r1", Flows: 2, GoodputBps: 100e6}}}
	keeper := newKeeper(t, b, k, fakeProber{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- keeper.Run(ctx) }()
	mustAdd(t, b, plain("10.0.0.0/8"), root)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		n := len(k.inForce)
		k.mu.Unlock()
		if r, _ := b.Get("r1"); n == 1 && r.Use.PeakBps == 100e6 && r.Use.Flows == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing is in force, or its use is not told")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestUseIsShared(t *testing.T) {
	b := newBook(t, newClock(), &memoryStore{}, Policy{Paths: house().Paths})
	mustAdd(t, b, Request{ID: "a", Remote: []string{"203.0.113.0/24"}, Rate: "600Mbit", For: "2h", RTT: "100ms"}, root)
	mustAdd(t, b, Request{ID: "b", Remote: []string{"203.0.113.0/24"}, Rate: "400Mbit", For: "1h", RTT: "100ms"}, root)
	b.used([]Use{{ID: "a+b", Flows: 3, GoodputBps: 7}})
	b.used([]Use{{ID: "a+b", Flows: 1, GoodputBps: 5}})
	r, _ := b.Get("b")
	if r.Use.Flows != 1 || r.Use.GoodputBps != 5 || r.Use.PeakBps != 7 || len(r.Use.SharedWith) != 1 || r.Use.SharedWith[0] != "a" {
		t.Errorf("%+v", r.Use)
	}
}
