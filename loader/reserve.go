// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/paced"
	"github.com/trunkline/trunkline/loader/policy"
)

// The bounds of what the kernel's tables hold of reservations.
const (
	MaxReserved         = 1024             // reservations in force at once
	MaxReservedPrefixes = 16384            // end points of all of them
	minReservedRate     = 8 << 10          // bytes per second
	maxReservedRate     = 1 << 37          // 1.1 Tbit/s
	maxReservedRTT      = 10 * time.Second // the bound of what is a path and not an error
)

// reserveState is which reservations are in force, and where they are in the kernel.
type reserveState struct {
	mu       sync.Mutex // guards what follows, for readers; who writes holds applyMu, too
	inForce  []policy.Reserved
	places   map[string]place // by ID
	prefixes map[bpf.ReservedPrefix]uint32
	entries  map[uint32]bpf.Reserved // by slot
	last     uint32                  // the latest generation given

	samples map[uint64]flowSample // by cookie
	names   map[uint32]string     // IDs by generation, of those that ended, too
	leaving time.Time             // flows of what has ended are looked for until then

	releaser   *paced.Releaser // loaded when the first reservation ends
	unreleased bool            // it cannot be, and that was logged
}

// place is where a reservation is in the kernel's tables.
type place struct{ slot, generation uint32 }

// Reserve puts these reservations in force, and no others: it may be called as often as wanted, and nil ends all. Flows of rules
// with window: reserved use the reservation with the longest prefix that holds their other end. Live flows of one that is gone
// lose pacing and their claim to the congestion window within a second, and keep their buffers.
//
// The rate is in bytes per second of the link layer, 8 KiB to 128 GiB, the round-trip time up to 10 s. It is an error to give an
// ID or a prefix twice, or more than MaxReserved reservations; then nothing changes.
func (l *Loader) Reserve(set []policy.Reserved) error {
	if err := checkReserved(set); err != nil {
		return err
	}
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.reserved.mu.Lock()
	now := time.Now()
	set = slices.DeleteFunc(slices.Clone(set), func(r policy.Reserved) bool { return !r.Until.IsZero() && !r.Until.After(now) })
	l.reserved.inForce = set
	l.reserved.mu.Unlock()
	if l.table != nil {
		l.rules.fits = l.makeRoom(l.table) // before the entries: a buffer is set only where there is room
	}
	if len(set) > 0 {
		if err := l.rememberPaced(); err != nil {
			return err
		}
	}
	ended, err := l.writeReserved()
	if err != nil {
		return err
	}
	if ended {
		l.releaseEnded()
	}
	return nil
}

// writeReserved brings the kernel's tables to what is in force: entries before the prefixes that lead to them, and what is over
// last. It says whether any has ended. applyMu is held.
func (l *Loader) writeReserved() (ended bool, err error) {
	s := &l.reserved
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places == nil {
		s.places, s.prefixes, s.entries = map[string]place{}, map[bpf.ReservedPrefix]uint32{}, map[uint32]bpf.Reserved{}
		s.names, s.samples = map[uint32]string{}, map[uint64]flowSample{}
	}
	places, err := s.assign()
	if err != nil {
		return false, err
	}
	entries, prefixes := map[uint32]bpf.Reserved{}, map[bpf.ReservedPrefix]uint32{}
	for _, r := range s.inForce {
		at := places[r.ID]
		entries[at.slot] = l.kernelReserved(r, at.generation, s.entries[at.slot])
		for _, p := range r.Remote {
			prefixes[bpf.ReservedPrefixFrom(policy.Normal(p))] = at.slot
		}
	}
	for slot, e := range s.entries {
		ended = ended || entries[slot].Generation != e.Generation
	}
	if ended {
		s.leaving = time.Now().Add(releaseFor)
	}
	m := l.maps["tl_reserved"]
	err = errors.Join(
		putAll(m, s.entries, entries, keys(entries)),
		putAll(l.maps["tl_reserved_net"], s.prefixes, prefixes, keys(prefixes)),
		deleteStale(l.maps["tl_reserved_net"], s.prefixes, prefixes, keys(s.prefixes)),
	)
	for _, slot := range keys(s.entries) { // of an array nothing is deleted
		if _, stays := entries[slot]; stays {
			continue
		}
		if e := m.Update(slot, bpf.Reserved{}, ebpf.UpdateAny); e != nil {
			err = errors.Join(err, e)
			continue
		}
		delete(s.entries, slot)
	}
	s.places = places
	if err != nil {
		return ended, fmt.Errorf("writing reservations: %w", err)
	}
	return ended, nil
}

// assign gives each reservation a slot and a generation: those that it has, or a slot that none has.
func (s *reserveState) assign() (map[string]place, error) {
	places, taken := map[string]place{}, map[uint32]bool{}
	for slot := range s.entries { // one that ends now keeps its slot until the next time: its flows still read it
		taken[slot] = true
	}
	for _, r := range s.inForce {
		if at, ok := s.places[r.ID]; ok {
			places[r.ID] = at
		}
	}
	free := uint32(0)
	for _, r := range s.inForce {
		if _, ok := places[r.ID]; ok {
			continue
		}
		for taken[free] {
			free++
		}
		if free >= MaxReserved {
			return nil, fmt.Errorf("reservation %q: the kernel's table of %d is full of those that end; try again", r.ID, MaxReserved)
		}
		s.last++
		taken[free] = true
		places[r.ID] = place{free, s.last}
		s.names[s.last] = r.ID
	}
	return places, nil
}

// kernelReserved is the entry of a reservation. The end is kept as it was unless it moved: the two clocks are never read at once.
func (l *Loader) kernelReserved(r policy.Reserved, generation uint32, old bpf.Reserved) bpf.Reserved {
	e := bpf.Reserved{RateBps: r.RateBps, RttUs: uint32(r.RTT.Microseconds()), Generation: generation, Squeeze: l.squeeze,
		Sign: uint32(paced.Sign(l.o.Instance))}
	if w := reservedWindow(r); w <= l.rules.fits.rcv {
		e.WindowBytes = w >> l.squeeze
	}
	if !r.Until.IsZero() {
		e.UntilNs = monotonic() + uint64(max(time.Until(r.Until), 0))
		if d := int64(e.UntilNs - old.UntilNs); old.Generation == generation && max(d, -d) < int64(10*time.Millisecond) {
			e.UntilNs = old.UntilNs
		}
	}
	for i := 0; i < len(r.ID) && i < len(e.Id)-1; i++ {
		e.Id[i] = int8(r.ID[i])
	}
	return e
}

// ReservedFor returns the reservation in force with the longest prefix that holds an address.
func (l *Loader) ReservedFor(a netip.Addr) (found policy.Reserved, ok bool) {
	l.reserved.mu.Lock()
	defer l.reserved.mu.Unlock()
	longest := -1
	for _, r := range l.reserved.inForce {
		for _, p := range r.Remote {
			if p = policy.Normal(p); p.Contains(a.Unmap()) && p.Bits() > longest {
				found, longest = r, p.Bits()
			}
		}
	}
	return found, longest >= 0
}

// checkReserved refuses what the kernel could not hold or would mistake.
func checkReserved(set []policy.Reserved) error {
	if len(set) > MaxReserved {
		return fmt.Errorf("%d reservations are in force at once, the kernel's table holds %d; end some", len(set), MaxReserved)
	}
	var errs []error
	ids, prefixes := map[string]bool{}, map[netip.Prefix]string{}
	for _, r := range set {
		where := fmt.Sprintf("reservation %q", r.ID)
		switch {
		case r.ID == "":
			errs = append(errs, fmt.Errorf("a reservation of %v has no id", r.Remote))
		case ids[r.ID]:
			errs = append(errs, fmt.Errorf("%s is given twice", where))
		case r.RateBps < minReservedRate || r.RateBps > maxReservedRate:
			errs = append(errs, fmt.Errorf("%s: a rate of %d bytes per second is not from %d to %d", where, r.RateBps, minReservedRate, uint64(maxReservedRate)))
		case r.RTT < time.Microsecond || r.RTT > maxReservedRTT:
			errs = append(errs, fmt.Errorf("%s: a round-trip time of %s is not from 1µs to %s; measure the path", where, r.RTT, maxReservedRTT))
		case len(r.Remote) == 0:
			errs = append(errs, fmt.Errorf("%s has no end point", where))
		}
		ids[r.ID] = true
		for _, p := range r.Remote {
			p = policy.Normal(p)
			if !p.IsValid() || p.Addr().Zone() != "" {
				errs = append(errs, fmt.Errorf("%s: end point %s is no prefix", where, p))
				continue
			}
			if other, twice := prefixes[p]; twice {
				errs = append(errs, fmt.Errorf("%s and reservation %q are both for %s; end one", where, other, p))
			}
			prefixes[p] = r.ID
		}
	}
	if len(prefixes) > MaxReservedPrefixes {
		errs = append(errs, fmt.Errorf("the reservations name %d prefixes, the kernel's table holds %d; join some", len(prefixes), MaxReservedPrefixes))
	}
	return errors.Join(errs...)
}
