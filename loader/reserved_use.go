// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"
	"time"

	"github.com/trunkline/trunkline/bpf"
)

// ReservedUse is what flows make of a reservation in force.
type ReservedUse struct {
	ID          string         `json:"id"`
	Flows       int            `json:"flows"`        // live, at rest or not
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

// flowSample is what a flow had carried at the latest look.
type flowSample struct {
	at              time.Time
	acked, received uint64
	ackedBps        uint64
	receivedBps     uint64
}

// sampleEvery is how often flows are looked at for what they carry.
const sampleEvery = 900 * time.Millisecond

// ReservedUse says what flows make of the reservations in force, in the order of Reserve.
func (l *Loader) ReservedUse() []ReservedUse {
	windows, err := snapshot[uint64, bpf.FlowWindow](l.maps["tl_flow_window"])
	flows := map[uint64]bpf.Flow{}
	for cookie, w := range windows {
		var f bpf.Flow
		if w.Generation != 0 && l.maps["tl_flow"].Lookup(cookie, &f) == nil {
			flows[cookie] = f
		}
	}
	if err != nil {
		l.log.Warn("reading what flows make of reservations", "err", err)
	}
	l.reserved.mu.Lock()
	defer l.reserved.mu.Unlock()
	l.reserved.sample(flows, time.Now())
	use := make([]ReservedUse, len(l.reserved.inForce))
	byGeneration := map[uint32]*ReservedUse{}
	for i, r := range l.reserved.inForce {
		at := l.reserved.places[r.ID]
		use[i] = ReservedUse{ID: r.ID, WindowBytes: l.reserved.entries[at.slot].WindowBytes}
		byGeneration[at.generation] = &use[i]
	}
	for cookie, f := range flows {
		w := windows[cookie]
		u := byGeneration[w.Generation]
		if u == nil {
			continue
		}
		s := l.reserved.samples[cookie]
		u.Flows++
		u.GoodputBps += s.ackedBps
		u.ReceivedBps += s.receivedBps
		u.PerFlow = append(u.PerFlow, ReservedFlow{
			Cookie: cookie, Local: endOf(f.LocalAddr, f.LocalPort), Remote: endOf(f.RemoteAddr, f.RemotePort), RuleID: f.RuleId,
			ShareBps: w.ShareBps, PacingBps: uint64(w.PacingBps), CwndMostPackets: w.MostPackets, WindowBytes: f.WindowBytes,
			GoodputBps: s.ackedBps, Retransmits: f.Retransmits,
		})
	}
	return use
}

// sample takes what flows of reservations carry since the latest look, if that is long enough ago.
func (s *reserveState) sample(flows map[uint64]bpf.Flow, now time.Time) {
	for cookie := range s.samples {
		if _, ok := flows[cookie]; !ok {
			delete(s.samples, cookie)
		}
	}
	for cookie, f := range flows {
		old, ok := s.samples[cookie]
		passed := now.Sub(old.at)
		if ok && passed < sampleEvery {
			continue
		}
		next := flowSample{at: now, acked: f.BytesAcked, received: f.BytesReceived}
		if ok && f.BytesAcked >= old.acked && f.BytesReceived >= old.received {
			next.ackedBps = uint64(float64(f.BytesAcked-old.acked) / passed.Seconds())
			next.receivedBps = uint64(float64(f.BytesReceived-old.received) / passed.Seconds())
		}
		s.samples[cookie] = next
	}
}
