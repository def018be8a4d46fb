// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

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

// reserveState is which reservations are in force.
type reserveState struct {
	mu      sync.Mutex // guards what follows; one Reserve at a time
	inForce []policy.Reserved
}

// ReservedUse is what flows make of a reservation in force.
type ReservedUse struct {
	ID          string         `json:"id"`
	Flows       int            `json:"flows"`        // live, at rest or not
	Weight      uint32         `json:"weight"`       // of the flows that send, in units of a rule's weight
	GoodputBps  uint64         `json:"goodput_Bps"`  // bytes per second that the other ends acknowledge, of all flows, over about the latest second
	ReceivedBps uint64         `json:"received_Bps"` // bytes per second that arrive, likewise
	WindowBytes uint32         `json:"window_bytes"` // receive buffer of each new flow; 0: the host gives none, RemedyText of the feature says why
	PerFlow     []ReservedFlow `json:"per_flow,omitempty"`
}

// ReservedFlow is a flow's part of a reservation.
type ReservedFlow struct {
	Cookie          uint64         `json:"cookie"`
	Local           netip.AddrPort `json:"local"`
	Remote          netip.AddrPort `json:"remote"`
	RuleID          uint32         `json:"rule_id"`
	ShareBps        uint64         `json:"share_Bps"`         // bytes per second of the link layer that the flow may send
	PacingBps       uint64         `json:"pacing_Bps"`        // bytes per second of payload, as set
	CwndMostPackets uint32         `json:"cwnd_most_packets"` // the most of the congestion window, as set
	WindowBytes     uint32         `json:"window_bytes"`      // receive buffer as set; 0: auto-tuned
	GoodputBps      uint64         `json:"goodput_Bps"`
	Retransmits     uint32         `json:"retransmits"` // segments
}

// Reserve puts these reservations in force, and no others: it may be called as often as wanted, and nil ends all. Flows of rules
// with window: reserved use the reservation with the longest prefix that holds their other end. Live flows of one that is gone
// lose pacing and their claim to the congestion window within a second, and keep their buffers.
//
// The rate is in bytes per second of the link layer, 8 KiB to 128 GiB, the round-trip time up to 10 s. It is an error to give an
// ID or a prefix twice, or more than MaxReserved reservations; then nothing changes.
func (l *Loader) Reserve(set []policy.Reserved) error {
	l.reserved.mu.Lock()
	defer l.reserved.mu.Unlock()
	if err := checkReserved(set); err != nil {
		return err
	}
	l.reserved.inForce = slices.Clone(set)
	return nil
}

// ReservedUse says what flows make of the reservations in force, in the order of Reserve.
func (l *Loader) ReservedUse() []ReservedUse {
	l.reserved.mu.Lock()
	defer l.reserved.mu.Unlock()
	use := make([]ReservedUse, len(l.reserved.inForce))
	for i, r := range l.reserved.inForce {
		use[i] = ReservedUse{ID: r.ID}
	}
	return use
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
