// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"net/netip"
	"slices"
	"strings"
)

// Use is what connections make of a reservation. Goodput is payload; the rate of a reservation counts headers, too: 1448 bytes
// of 1514 at an MTU of 1500 are 95.6 %.
type Use struct {
	ID          string `json:"-"`           // as in policy.Reserved
	Flows       int    `json:"flows"`       // live ones that use it
	GoodputBps  uint64 `json:"goodput_Bps"` // bytes per second that the other ends acknowledge, all together
	ReceivedBps uint64 `json:"received_Bps"`
	PeakBps     uint64 `json:"goodput_peak_Bps"` // the highest of both since the reservation began

	PerFlow []FlowUse `json:"per_flow,omitempty"` // of `reserve show` alone

	SharedWith []string `json:"shared_with,omitempty"` // other reservations of the same end points, whose connections are counted, too
}

// FlowUse is a connection's part of a reservation.
type FlowUse struct {
	Local       netip.AddrPort `json:"local"`
	Remote      netip.AddrPort `json:"remote"`
	ShareBps    uint64         `json:"share_Bps"`    // bytes per second of the link layer that it may send
	WindowBytes uint32         `json:"window_bytes"` // receive buffer as set; 0: tuned by the kernel
	GoodputBps  uint64         `json:"goodput_Bps"`
	Retransmits uint32         `json:"retransmits"` // segments
}

// used notes what connections make of reservations now.
func (b *Book) used(all []Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byID := map[string]Use{}
	for _, u := range all {
		ids := strings.Split(u.ID, "+")
		for _, id := range ids {
			u.SharedWith = slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
			if len(u.SharedWith) == 0 {
				u.SharedWith = nil
			}
			byID[id] = u
		}
	}
	for id, r := range b.all {
		u := byID[id]
		u.PeakBps = max(r.Use.PeakBps, u.GoodputBps, u.ReceivedBps)
		if u.PeakBps > r.Use.PeakBps && b.clock.Boot()-b.kept > keepEvery {
			b.stale = true
		}
		r.Use = u
	}
}
