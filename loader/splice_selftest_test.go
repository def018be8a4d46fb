// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/trunkline/trunkline/internal/testkit"
)

// needSockmap skips where the kernel has no sockmap, or the test may not use it.
func needSockmap(t *testing.T) {
	t.Helper()
	testkit.NeedRoot(t)
	if err := features.HaveMapType(ebpf.SockHash); errors.Is(err, ebpf.ErrNotSupported) {
		testkit.NeedFeature(t, "splice", err)
	}
	if noBTF() {
		testkit.NeedFeature(t, "btf", errors.New("the sockmap's verdict needs it"))
	}
}

// TestSpliceSelfTest records what this kernel does. Only the known faults of some kernels may be found, and they must be
// found by their names.
func TestSpliceSelfTest(t *testing.T) {
	needSockmap(t)
	var err error
	for range 3 { // another's load may come between the measurement and the checks
		start := time.Now()
		err = testSplice(t.Context())
		took := time.Since(start)
		t.Logf("self-test took %v: %v", took, err)
		if outOfTime(err) {
			continue
		}
		if took > testkit.Wait(2*time.Second) {
			t.Errorf("the self-test took %v", took)
		}
		break
	}
	var failed *SpliceTestError
	if err != nil && !errors.As(err, &failed) {
		t.Fatalf("the error %v names no check", err)
	}
	if failed == nil {
		return
	}
	for _, f := range failed.Failures {
		if f.Check != "fionread" && f.Check != "blocking-read" {
			t.Errorf("check %s fails: %v", f.Check, f.Err)
		}
	}
}

// A slow machine gets more time, but a fast one no less and none gets endless time.
func TestSpliceBounds(t *testing.T) {
	for _, c := range []struct{ plain, total time.Duration }{
		{0, 1800 * time.Millisecond},
		{10 * time.Millisecond, 1800 * time.Millisecond},
		{200 * time.Millisecond, 30 * time.Second},
		{5 * time.Second, time.Minute},
	} {
		got := boundsFor(c.plain)
		if got.total != c.total || got.check != c.total/2 || got.settle < 5*time.Millisecond || got.settle > got.check/100 {
			t.Errorf("plain transfer %v: %+v", c.plain, got)
		}
	}
}

// TestSpliceSelfTestSeesFaults breaks the fast path in ways a kernel could, and expects the check meant for it to say so.
func TestSpliceSelfTestSeesFaults(t *testing.T) {
	needSockmap(t)
	find := func(name string) spliceCheck {
		for _, c := range spliceChecks {
			if c.name == name {
				return c
			}
		}
		t.Fatalf("no check %s", name)
		return spliceCheck{}
	}
	tests := []struct {
		check string
		fault func(p *splicePair) error
	}{
		// The verdict finds no target: nothing is redirected.
		{"redirect", func(p *splicePair) error { return p.b.coll.Maps["tl_engs"].Delete(p.id) }},
		{"hash", func(p *splicePair) error { return p.b.coll.Maps["tl_engs"].Delete(p.id) }},
		// Bytes of somebody else in front.
		{"half-close", func(p *splicePair) error { _, err := p.app.Write([]byte("x")); return err }},
		{"release", func(p *splicePair) error { _, err := p.app.Write([]byte("x")); return err }},
		{"epoll-level", func(p *splicePair) error { _, err := p.eng.Write([]byte("x")); return err }},
		{"blocking-read", func(p *splicePair) error { _, err := p.eng.Write([]byte("x")); return err }},
		{"fionread", func(p *splicePair) error { _, err := p.eng.Write([]byte("x")); return err }},
		// An end where there should be a reset.
		{"reset", func(p *splicePair) error { return p.app.CloseWrite() }},
		{"abort", func(p *splicePair) error { return p.eng.CloseWrite() }},
	}
	b, err := newSpliceBench()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	for _, tt := range tests {
		t.Run(tt.check, func(t *testing.T) {
			c := find(tt.check)
			faulty := spliceCheck{c.name, func(p *splicePair) error {
				if err := tt.fault(p); err != nil {
					t.Fatal(err)
				}
				return c.run(p)
			}}
			if err := b.check(t.Context(), faulty); err == nil {
				t.Error("the check does not notice")
			} else {
				t.Log(err)
			}
		})
	}
}
