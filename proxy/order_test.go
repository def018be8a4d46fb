// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

func TestArrivalsNameTheFlowBefore(t *testing.T) {
	var a arrivals
	web, db := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.1:5432")
	for _, step := range []struct {
		to          netip.AddrPort
		id, after   uint64
		thenSettled []uint64
	}{
		{web, 1, 0, nil},
		{db, 2, 0, nil},
		{web, 3, 1, []uint64{1}}, // 1 is not the last any more
		{web, 4, 3, []uint64{4}},
		{web, 5, 0, []uint64{5}},
		{db, 6, 2, nil},
	} {
		if after := a.next(step.to, step.id); after != step.after {
			t.Errorf("flow %d comes after %d, want %d", step.id, after, step.after)
		}
		for _, id := range step.thenSettled {
			a.settled(step.to, id)
		}
	}
}

func TestADialWaitsForTheOneBefore(t *testing.T) {
	var d dials
	waited := func(ctx context.Context, id uint64) time.Duration {
		start := time.Now()
		d.await(ctx, id)
		return time.Since(start)
	}
	if w := waited(t.Context(), 0); w > dialOrderWait/2 {
		t.Errorf("waited %v for no flow", w)
	}
	d.done(7)
	if w := waited(t.Context(), 7); w > dialOrderWait/2 {
		t.Errorf("waited %v for a flow that was dialled", w)
	}
	for id := uint64(100); ; id++ { // a busy machine wakes nobody in time: not three times in a row
		go func() {
			time.Sleep(dialOrderWait / 5)
			d.done(id)
		}()
		w := waited(t.Context(), id)
		if w >= dialOrderWait/10 && w <= dialOrderWait*4/5 {
			break
		}
		if id == 102 {
			t.Fatalf("waited %v for a flow that was dialled after %v", w, dialOrderWait/5)
		}
	}
	if w := waited(t.Context(), 9); w < dialOrderWait*4/5 {
		t.Errorf("waited %v for a flow that never came, want %v", w, dialOrderWait)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if w := waited(gone, 10); w > dialOrderWait/2 {
		t.Errorf("waited %v after the flow itself had ended", w)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range []uint64{9, 10} {
		if d.flows[id] != nil {
			t.Errorf("flow %d, which never came, is still remembered", id)
		}
	}
}
