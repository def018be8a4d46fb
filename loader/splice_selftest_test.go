// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// needSockmap skips where the kernel has no sockmap, or the test may not use it.
func needSockmap(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := features.HaveMapType(ebpf.SockHash); errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("this kernel has no sockhash")
	}
	if noBTF() {
		t.Skip("this kernel carries no BTF, which the verdict needs")
	}
}

// TestSpliceSelfTest records what this kernel does. Only the known faults of some kernels may be found, and they must be
// found by their names.
func TestSpliceSelfTest(t *testing.T) {
	needSockmap(t)
	var err error
	for range 3 {
		start := time.Now()
		err = testSplice(t.Context())
		took := time.Since(start)
		t.Logf("self-test took %v: %v", took, err)
		if outOfTime(err) {
			continue
		}
		if took > 2*time.Second {
			t.Errorf("the self-test took %v", took)
		}
		break
	}
	if outOfTime(err) {
		t.Skip("this machine is too slow for the self-test's bounds")
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
