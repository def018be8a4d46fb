// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
)

// Flow is a live connection of a rule or of the agent, as of its latest callback: about once a round trip.
type Flow struct {
	Cookie          uint64         `json:"cookie"` // of the socket
	Kind            string         `json:"kind"`   // plain, steered, leg or dialled
	Local           netip.AddrPort `json:"local"`
	Remote          netip.AddrPort `json:"remote"` // steered: the destination the application asked for
	Passive         bool           `json:"passive"`
	State           string         `json:"state"`
	RuleID          uint32         `json:"rule_id"`
	PeerID          uint32         `json:"peer_id,omitempty"` // legs that carry a flow
	Path            netip.Prefix   `json:"path,omitzero"`     // what the flow counts for; not valid: nothing
	Priority        string         `json:"priority"`
	Reason          reason.Code    `json:"reason"`
	ReasonName      string         `json:"reason_name"`
	AgeS            float64        `json:"age_s"`
	UpdatedS        float64        `json:"updated_s"` // seconds since the latest callback
	SRTTUs          uint32         `json:"srtt_us"`
	RTTMinUs        uint32         `json:"rtt_min_us"`
	CwndPackets     uint32         `json:"cwnd_packets"`
	SsthreshPackets uint32         `json:"ssthresh_packets"` // 0: none yet
	MSSBytes        uint32         `json:"mss_bytes"`
	DeliveredBps    uint64         `json:"delivered_Bps"` // bytes per second
	BytesAcked      uint64         `json:"bytes_acked"`
	BytesReceived   uint64         `json:"bytes_received"`
	SegsOut         uint32         `json:"segs_out"`
	Retransmits     uint32         `json:"retransmits"` // segments
	LossEvents      uint32         `json:"loss_events"` // retransmissions of one window count once
	Marked          uint64         `json:"marked"`      // packets on the wire
	Congestion      string         `json:"congestion"`  // what the socket really has
	CongestionErrno int32          `json:"congestion_errno,omitempty"`
	Auto            bool           `json:"auto,omitempty"` // follows the choice of its path
	WindowBytes     uint32         `json:"window_bytes"`   // 0: auto-tuning
	WindowErrno     int32          `json:"window_errno,omitempty"`

	Window         string `json:"window"`                    // the mode: kernel, fixed, auto or reserved
	WindowWhy      string `json:"window_why,omitempty"`      // why it has not all that the mode gives
	InitialPackets uint32 `json:"initial_packets,omitempty"` // the initial congestion window set; 0: the kernel's
	Reservation    string `json:"reservation,omitempty"`     // the ID of the one in force for the flow
	ShareBps       uint64 `json:"share_Bps,omitempty"`       // bytes per second of the link layer, of its rate, to send
	ReceiveBps     uint64 `json:"receive_Bps,omitempty"`     // and to receive
	PacingBps      uint64 `json:"pacing_Bps,omitempty"`      // bytes per second of payload, as set for the share
	CwndMost       uint32 `json:"cwnd_most_packets,omitempty"`
	AdvertiseMost  uint32 `json:"advertise_most_bytes,omitempty"` // of the window, as set for the share; 0: the buffer's

	// Algorithm is what a congestion control of trunkline's own keeps of the flow, by name with the unit.
	Algorithm map[string]float64 `json:"algorithm,omitempty"`
}

// Path is what the flows to one prefix, or to one peer there, add up to.
type Path struct {
	Prefix        netip.Prefix `json:"prefix"`
	PeerID        uint32       `json:"peer_id,omitempty"`
	UpdatedS      float64      `json:"updated_s"` // seconds since the latest callback
	Flows         uint64       `json:"flows"`
	BytesAcked    uint64       `json:"bytes_acked"`
	BytesReceived uint64       `json:"bytes_received"`
	SegsOut       uint64       `json:"segs_out"`
	Retransmits   uint64       `json:"retransmits"`   // segments
	DeliveredBps  uint64       `json:"delivered_Bps"` // bytes per second, moving average
	SRTTUs        uint32       `json:"srtt_us"`       // moving average
	RTTMinUs      uint32       `json:"rtt_min_us"`
}

// noSsthresh is the kernel's infinity.
const noSsthresh = 0x7fffffff

// tcpStates names the kernel's numbers.
var tcpStates = [...]string{1: "established", "syn-sent", "syn-recv", "fin-wait-1", "fin-wait-2", "time-wait", "close",
	"close-wait", "last-ack", "listen", "closing", "new-syn-recv"}

// Flows returns the live flows, the oldest first.
func (l *Loader) Flows() ([]Flow, error) {
	flows, err := l.flows(func(bpf.Flow) bool { return true })
	if err != nil {
		return nil, err
	}
	l.addInsides(flows)
	return flows, nil
}

// AutoFlows returns the live flows that follow the choice of their path, the oldest first, without what algorithms keep of them.
func (l *Loader) AutoFlows() ([]Flow, error) {
	return l.flows(func(f bpf.Flow) bool { return f.AutoCongestion != 0 })
}

func (l *Loader) flows(want func(bpf.Flow) bool) ([]Flow, error) {
	entries, err := snapshot[uint64, bpf.Flow](l.maps["tl_flow"])
	if err != nil {
		return nil, err
	}
	windows, err := snapshot[uint64, bpf.FlowWindow](l.maps["tl_flow_window"])
	if err != nil {
		return nil, err
	}
	now := monotonic()
	flows := make([]Flow, 0, len(entries))
	l.reserved.mu.Lock()
	defer l.reserved.mu.Unlock()
	for cookie, f := range entries {
		if want(f) {
			flow := decodeFlow(cookie, f, now)
			if w, ok := windows[cookie]; ok {
				flow.addWindow(w, l.reserved.names[w.Generation])
			}
			flows = append(flows, flow)
		}
	}
	slices.SortFunc(flows, func(a, b Flow) int { return int(int64(a.Cookie - b.Cookie)) })
	return flows, nil
}

// Paths returns the paths that are known, ordered by prefix.
func (l *Loader) Paths() ([]Path, error) {
	entries, err := snapshot[bpf.PathKey, bpf.Path](l.maps["tl_path"])
	if err != nil {
		return nil, err
	}
	now := monotonic()
	paths := make([]Path, 0, len(entries))
	for k, p := range entries {
		paths = append(paths, decodePath(k, p, now))
	}
	slices.SortFunc(paths, func(a, b Path) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return int(a.PeerID) - int(b.PeerID)
	})
	return paths, nil
}

// snapshot reads a hash that programs change meanwhile: an entry that is deleted while the iteration stands on it makes
// it begin again, so entries are told apart by their keys, and what an aborted iteration has seen is good enough.
func snapshot[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	if m == nil {
		return nil, errors.New("the loader is closed")
	}
	out := map[K]V{}
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		out[k] = v
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("reading %s: %w", m, err)
	}
	return out, nil
}

func decodeFlow(cookie uint64, f bpf.Flow, now uint64) Flow {
	out := Flow{
		Cookie:          cookie,
		Kind:            bpf.FlowKind(f.Kind).String(),
		Local:           endOf(f.LocalAddr, f.LocalPort),
		Remote:          endOf(f.RemoteAddr, f.RemotePort),
		Passive:         f.Passive != 0,
		RuleID:          f.RuleId,
		PeerID:          f.PeerId,
		Priority:        bpf.Priority(f.Priority).String(),
		Reason:          reason.Code(f.Reason),
		ReasonName:      reason.Code(f.Reason).String(),
		AgeS:            since(now, f.StartNs),
		UpdatedS:        since(now, f.UpdateNs),
		SRTTUs:          f.SrttUs,
		RTTMinUs:        f.RttMinUs,
		CwndPackets:     f.CwndPackets,
		SsthreshPackets: f.SsthreshPackets,
		MSSBytes:        f.MssBytes,
		DeliveredBps:    f.DeliveredBps,
		BytesAcked:      f.BytesAcked,
		BytesReceived:   f.BytesReceived,
		SegsOut:         f.SegsOut,
		Retransmits:     f.Retransmits,
		LossEvents:      f.LossEvents,
		Auto:            f.AutoCongestion != 0,
		Marked:          f.Marked,
		Congestion:      bpf.CCName(f.Congestion),
		CongestionErrno: -f.CongestionRc,
		WindowBytes:     f.WindowBytes,
		WindowErrno:     -f.WindowRc,
		Window:          bpf.WindowMode(f.Window).String(),
	}
	out.Path, _ = f.Path()
	if int(f.State) < len(tcpStates) {
		out.State = tcpStates[f.State]
	}
	if out.SsthreshPackets == noSsthresh {
		out.SsthreshPackets = 0
	}
	return out
}

// addWindow adds what the flow has of its window's mode; id is that of its reservation.
func (f *Flow) addWindow(w bpf.FlowWindow, id string) {
	f.WindowWhy, f.InitialPackets, f.Reservation = bpf.WindowWhy(w.Why).String(), w.InitialPackets, id
	if w.Generation != 0 {
		f.ShareBps, f.ReceiveBps, f.PacingBps = w.ShareBps, w.ReceiveBps, uint64(w.PacingBps)
		f.CwndMost, f.AdvertiseMost = w.MostPackets, w.AdvertisedBytes
	}
}

func decodePath(k bpf.PathKey, p bpf.Path, now uint64) Path {
	return Path{
		Prefix:        k.Netip(),
		PeerID:        k.PeerId,
		UpdatedS:      since(now, p.UpdateNs),
		Flows:         p.Flows,
		BytesAcked:    p.BytesAcked,
		BytesReceived: p.BytesReceived,
		SegsOut:       p.SegsOut,
		Retransmits:   p.Retransmits,
		DeliveredBps:  p.DeliveredBps,
		SRTTUs:        p.SrttUs,
		RTTMinUs:      p.RttMinUs,
	}
}

// endOf returns an end of a connection; an address of all zero is the unspecified one of IPv6.
func endOf(a bpf.Addr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.B).Unmap(), port)
}

// since returns the seconds between two readings of CLOCK_MONOTONIC in ns.
func since(now, then uint64) float64 {
	if then == 0 || then > now {
		return 0
	}
	return time.Duration(now - then).Seconds()
}
