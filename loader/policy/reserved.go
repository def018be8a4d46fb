// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"time"
)

// Reserved is a path that a provisioning system has granted this host for a time: a rate that is this host's alone, and the round-trip
// time measured on it. Both together give the window W = B x RTT (Noh and Ahn, 2009).
type Reserved struct {
	ID      string         // of the reservation: for flows, explain and the log
	Remote  []netip.Prefix // end points at the other side
	RateBps uint64         // bytes per second, of the link layer, for all of this host's flows on the path together
	RTT     time.Duration  // of the path without a queue
	Until   time.Time      // when it ends, even if the agent hangs by then; zero: when it is no longer said to be in force
}

// BDPBytes returns rate x RTT: the bytes that fill the path.
func (r Reserved) BDPBytes() uint64 {
	return uint64(float64(r.RateBps) * r.RTT.Seconds())
}
