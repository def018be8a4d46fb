// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/proxy"
)

// kindCarried is an engine's flow whose sockets the kernel side tells nothing of.
const kindCarried = "carried"

// Peers gives the engine's view of the peers.
func (a *agent) Peers() ([]control.Peer, error) {
	peers := []control.Peer{}
	for _, p := range a.engine.Peers() {
		peers = append(peers, control.Peer{
			ID: p.ID, Name: p.Name, Address: p.Address, Up: p.Up, Since: p.Since, Reason: reasonName(p.Reason), Detail: p.Problem,
			RTTMicroseconds: p.RTT.Microseconds(), Version: p.Version, LegsWarm: p.LegsWarm, LegsUsed: p.LegsUsed,
			FlowsOpened: p.FlowsOpened, FlowsAccepted: p.FlowsAccepted,
			RawSent: uint64(p.RawSent), WireSent: uint64(p.WireSent), RawReceived: uint64(p.RawReceived),
			WireReceived: uint64(p.WireReceived), History: uint64(p.HistoryBytes), HistoryDisk: uint64(p.HistoryDisk), Codec: p.Codec.String(), Codecs: p.Codecs,
		})
	}
	return peers, nil
}

// Paths gives what the kernel side measured, the paths used last first.
func (a *agent) Paths() ([]control.Path, error) {
	measured, err := a.loader.Paths()
	if err != nil {
		return nil, err
	}
	names, chosen := a.reverse(), a.chosen()
	paths := make([]control.Path, 0, len(measured))
	for _, p := range measured {
		peer := names.peers[p.PeerID]
		paths = append(paths, control.Path{
			Prefix: p.Prefix, Peer: peer, Choice: of(chosen, p.Prefix, peer), Flows: p.Flows, SRTTMicroseconds: p.SRTTUs, MinRTT: p.RTTMinUs,
			DeliveredBps: p.DeliveredBps, BytesAcked: p.BytesAcked, BytesReceived: p.BytesReceived, SegmentsOut: p.SegsOut,
			Retransmits: p.Retransmits, IdleSeconds: p.UpdatedS,
		})
		delete(chosen, choice.Path{Prefix: p.Prefix, Peer: peer})
	}
	for _, c := range chosen { // remembered from before this agent, and not used since
		paths = append(paths, control.Path{Prefix: c.Prefix, Peer: c.Peer, Choice: &c, IdleSeconds: max(time.Since(c.Updated).Seconds(), 0)})
	}
	slices.SortFunc(paths, func(x, y control.Path) int { return cmp.Compare(x.IdleSeconds, y.IdleSeconds) })
	return paths, nil
}

// carried is a flow in the engine, and whether one of its sockets shows it already.
type carried struct {
	proxy.FlowStatus
	shown bool
}

// Flows joins what the kernel knows of sockets with what the engine knows of the connections it carries. They meet in the
// application's end of a steered connection, and in the leg.
func (a *agent) Flows() ([]control.Flow, error) {
	sockets, err := a.loader.Flows()
	if err != nil {
		return nil, err
	}
	names, chosen := a.reverse(), a.chosen()
	clients, legs := map[netip.AddrPort]*carried{}, map[uint64]*carried{}
	var engine []*carried
	for _, f := range a.engine.Flows() {
		c := &carried{FlowStatus: f}
		engine = append(engine, c)
		if f.Near {
			clients[f.Client] = c
		}
		if f.LegCookie != 0 {
			legs[f.LegCookie] = c
		}
	}
	flows := []control.Flow{}
	for _, s := range sockets {
		w := fromSocket(s)
		if c := clients[s.Local]; c != nil && s.Kind == "steered" {
			addEngine(&w, c)
		}
		if c := legs[s.Cookie]; c != nil {
			w.Peer, w.WindowBytes = c.Peer, c.WindowBytes
			if !c.Near { // at the near end the steered flow has the engine's account
				addEngine(&w, c)
			}
		}
		if w.Peer == "" {
			w.Peer = names.peers[s.PeerID]
		}
		if s.Auto {
			w.Choice = of(chosen, s.Path, names.peers[s.PeerID])
		}
		flows = append(flows, w)
	}
	for _, f := range engine {
		if f.shown {
			continue
		}
		w := control.Flow{Kind: kindCarried, Passive: !f.Near, Local: f.Client, Remote: f.Destination, RuleID: f.RuleID,
			AgeSeconds: time.Since(f.Start).Seconds()}
		addEngine(&w, f)
		flows = append(flows, w)
	}
	for i := range flows {
		flows[i].Rule = names.rules[flows[i].RuleID]
	}
	return flows, nil
}

func fromSocket(s loader.Flow) control.Flow {
	return control.Flow{
		Cookie: s.Cookie, Kind: s.Kind, Passive: s.Passive, Local: s.Local, Remote: s.Remote, RuleID: s.RuleID,
		Reason: reasonName(s.Reason), State: s.State, AgeSeconds: s.AgeS, Congestion: s.Congestion,
		CongestionError: errnoText(s.CongestionErrno), Priority: s.Priority, WindowBytes: s.WindowBytes,
		WindowError: errnoText(s.WindowErrno), CwndPackets: s.CwndPackets, SSThreshPackets: s.SsthreshPackets,
		MSSBytes: s.MSSBytes, SRTTMicroseconds: s.SRTTUs, MinRTT: s.RTTMinUs, DeliveredBps: s.DeliveredBps,
		BytesAcked: s.BytesAcked, BytesReceived: s.BytesReceived, SegmentsOut: s.SegsOut, Retransmits: s.Retransmits,
		Marked: s.Marked, Algorithm: s.Algorithm, Auto: s.Auto, LossEvents: s.LossEvents,
		Window: s.Window, WindowWhy: s.WindowWhy, InitialPackets: s.InitialPackets, Reservation: s.Reservation, ShareBps: s.ShareBps,
		ReceiveBps: s.ReceiveBps, PacingBps: s.PacingBps, CwndMost: s.CwndMost, AdvertiseMost: s.AdvertiseMost,
	}
}

func addEngine(w *control.Flow, f *carried) {
	f.shown = true
	w.Peer = f.Peer
	if f.Reason != reason.None {
		w.Reason = reasonName(f.Reason)
	}
	w.Engine = &control.EngineFlow{
		ID: f.ID, Direct: f.Direct, RawSent: uint64(f.RawSent), WireSent: uint64(f.WireSent), RawReceived: uint64(f.RawReceived),
		WireReceived: uint64(f.WireReceived),
	}
	if !f.Direct {
		w.Engine.Codec, w.Engine.Effort = f.Codec.String(), f.Effort.String()
	}
}

// reasonName is "" for no reason.
func reasonName(c reason.Code) string {
	if c == reason.None {
		return ""
	}
	return c.String()
}

func errnoText(n int32) string {
	if n == 0 {
		return ""
	}
	return syscall.Errno(n).Error()
}

// reverseNames finds names by number.
type reverseNames struct{ peers, rules map[uint32]string }

func (a *agent) reverse() reverseNames {
	a.mu.Lock()
	defer a.mu.Unlock()
	return reverseNames{a.names.peers.reverse(), a.names.rules.reverse()}
}

func (n numbering) reverse() map[uint32]string {
	r := make(map[uint32]string, len(n))
	for name, id := range n {
		r[id] = name
	}
	return r
}
