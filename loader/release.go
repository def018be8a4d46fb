// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"strconv"
	"time"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/paced"
	"github.com/trunkline/trunkline/loader/ledger"
)

const (
	releaseFor  = 3 * time.Second // flows of what has ended are looked for so long, once a second
	releaseWait = time.Second     // what flows get at the end of the agent to come down to a window of their own
	releasePoll = 50 * time.Millisecond
)

// releaseEnded takes what an ended reservation gave from flows that send nothing; those that send have lost it before they send.
func (l *Loader) releaseEnded() {
	s := &l.reserved
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.releaser == nil && !s.unreleased {
		r, err := paced.Open(bpf.ReleaseEnded, paced.Sign(l.o.Instance), l.maps)
		if err != nil {
			s.unreleased = true
			l.log.Warn("flows at rest keep the rate of a reservation that has ended until they send again", "err", err)
			return
		}
		s.releaser = r
		l.onClose(r.Close)
	}
	if s.releaser == nil {
		return
	}
	if err := s.releaser.Run(); err != nil {
		l.log.Warn("taking what reservations gave from flows at rest", "err", err)
	}
}

// sweepReserved does once a second what nobody else does in time: reservations end by themselves, flows at rest are told, and
// what flows carry is sampled.
func (l *Loader) sweepReserved() {
	s := &l.reserved
	now := time.Now()
	s.mu.Lock()
	over, leaving, any := false, now.Before(s.leaving), len(s.inForce) > 0
	for _, r := range s.inForce {
		over = over || !r.Until.IsZero() && !r.Until.After(now)
	}
	set := s.inForce
	s.mu.Unlock()
	switch {
	case over:
		if err := l.Reserve(set); err != nil {
			l.log.Warn("ending reservations", "err", err)
		}
	case leaving:
		l.releaseEnded()
	}
	if any {
		l.ReservedUse()
	}
}

// rememberPaced writes down that flows are paced, so that cleanup finds those of an agent that was killed.
func (l *Loader) rememberPaced() error {
	if l.pacedID != 0 || l.o.Ledger == nil {
		return nil
	}
	id, err := l.o.Ledger.Record(ledger.Entry{Kind: ledger.Paced, Target: l.o.Instance,
		New: strconv.Itoa(int(paced.Sign(l.o.Instance)))})
	l.pacedID = id
	return err
}

// releaseStale takes what reservations gave from the flows of an agent that was killed.
func (l *Loader) releaseStale() {
	if l.o.Ledger == nil {
		return
	}
	entries, err := l.o.Ledger.Entries()
	if err != nil {
		l.log.Warn("looking for flows of an agent that was killed", "err", err)
		return
	}
	var ids []uint64
	for _, e := range entries {
		if e.Kind == ledger.Paced {
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	if _, err := l.o.Ledger.UndoOnly(l.log, ids...); err != nil {
		l.log.Warn("flows of an agent that was killed keep the rate of a reservation until they close", "err", err)
	}
}

// releaseAll ends all reservations with the agent: flows get a moment to come down to windows of their own, then what is set
// on them is taken back for good.
func (l *Loader) releaseAll() error {
	l.applyMu.Lock()
	never := l.pacedID == 0 && len(l.reserved.places) == 0
	l.applyMu.Unlock()
	if never {
		return nil
	}
	err := l.Reserve(nil)
	for end := time.Now().Add(releaseWait); time.Now().Before(end) && l.anyReserved(); {
		time.Sleep(releasePoll)
	}
	if e := paced.Once(bpf.ReleaseAll, paced.Sign(l.o.Instance), l.maps); e != nil {
		l.log.Warn("flows may keep the rate of a reservation until they close", "err", e)
	}
	if l.pacedID != 0 {
		err = errors.Join(err, l.o.Ledger.Forget(l.pacedID))
	}
	return err
}

// anyReserved says whether a live flow still has something of a reservation.
func (l *Loader) anyReserved() bool {
	flows, err := snapshot[uint64, bpf.FlowWindow](l.maps["tl_flow_window"])
	if err != nil {
		return false
	}
	for _, f := range flows {
		if f.Generation != 0 || f.Leaving != 0 {
			return true
		}
	}
	return false
}
