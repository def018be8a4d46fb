// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// PeerStatus describes a peer. Bytes are totals since the agent started; wire bytes are frames, before TLS.
type PeerStatus struct {
	ID            uint32
	Name          string
	Address       string
	Up            bool
	Since         time.Time // of the last change of Up
	RTT           time.Duration
	Version       string // of the peer's protocol; empty: not met yet
	LegsWarm      int
	LegsUsed      int    // live flows, either way
	FlowsOpened   uint64 // steered here and opened at the peer
	FlowsAccepted uint64 // opened here for the peer
	RawSent       int64
	WireSent      int64
	RawReceived   int64
	WireReceived  int64
	HistoryBytes  int64      // of all histories with this peer, in memory
	HistoryDisk   int64      // and on disk
	Codec         codec.Spec // of its rules that say nothing else
	Codecs        []string   // that the peer has; empty: not met yet
	Reason        reason.Code
	Problem       string // why it is down, for people
}

// FlowStatus describes a live flow. Sent is towards the peer. Wire bytes are frames, before TLS.
type FlowStatus struct {
	ID           uint64
	Near         bool           // the application is on this host
	Direct       bool           // carried without the peer
	Client       netip.AddrPort // near: as the engine sees it; else as the peer says, and not valid if it does not
	Destination  netip.AddrPort
	Peer         string
	Codec        codec.Spec
	Effort       codec.Effort // for bytes towards the peer that it does not hold
	LegCookie    uint64       // of the leg's socket; 0: none
	WindowBytes  uint32       // fixed receive window of the leg, as the kernel gave it; 0: auto-tuned
	RuleID       uint32
	Reason       reason.Code // why it is not optimised
	RawSent      int64
	WireSent     int64
	RawReceived  int64
	WireReceived int64
	Start        time.Time
}

// Peers describes all peers, in the order of the configuration.
func (e *Engine) Peers() []PeerStatus {
	e.mu.Lock()
	peers := slices.Clone(e.peers)
	e.mu.Unlock()
	list := make([]PeerStatus, 0, len(peers))
	for _, p := range peers {
		list = append(list, p.status())
	}
	return list
}

func (p *peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PeerStatus{
		ID: p.cfg.ID, Name: p.cfg.Name, Address: p.cfg.Address, Up: p.up, Since: p.since, RTT: p.rtt, Version: p.version,
		LegsWarm: len(p.idle), LegsUsed: int(p.flows.Load()), FlowsOpened: p.opened.Load(), FlowsAccepted: p.accepted.Load(),
		RawSent: p.total.rawSent.Load(), WireSent: p.total.wireSent.Load(),
		RawReceived: p.total.rawReceived.Load(), WireReceived: p.total.wireReceived.Load(),
		Reason: p.reason, Problem: p.problem, Codec: p.cfg.Codec, Codecs: dedup.Names(p.features),
	}
	if p.cfg.Address == "" && p.inbound > 0 {
		s.Up, s.Reason, s.Problem = true, reason.None, ""
	}
	s.HistoryBytes += p.memory.SegmentBytes()
	for _, h := range p.memory.Senders.Stats() {
		s.HistoryBytes, s.HistoryDisk = s.HistoryBytes+h.MemoryBytes+h.IndexBytes, s.HistoryDisk+h.DiskBytes
	}
	for _, h := range p.memory.Receivers.Stats() {
		s.HistoryBytes, s.HistoryDisk = s.HistoryBytes+h.MemoryBytes+h.IndexBytes, s.HistoryDisk+h.DiskBytes
	}
	return s
}

// Flows describes all live flows, oldest first.
func (e *Engine) Flows() []FlowStatus {
	e.mu.Lock()
	list := make([]FlowStatus, 0, len(e.flows)+len(e.relays))
	for _, f := range e.flows {
		list = append(list, f.status())
	}
	for r := range e.relays {
		list = append(list, FlowStatus{
			ID: r.id, Near: true, Direct: true, Client: r.client, Destination: r.destination, RuleID: r.rule.ID, Reason: r.reason,
			RawSent: r.up.Load(), WireSent: r.up.Load(), RawReceived: r.down.Load(), WireReceived: r.down.Load(), Start: r.start,
		})
	}
	e.mu.Unlock()
	slices.SortFunc(list, func(a, b FlowStatus) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// fairBytes is after how many bytes a flow that saves nothing is called incompressible.
const fairBytes = 64 << 10

// reason tells why the flow gains nothing. The encoder knows one direction only, and that of a download is the other end's.
func (f *flow) reason() reason.Code {
	if code := reason.Code(f.encReason.Load()); code != reason.None {
		return code
	}
	raw := f.count.rawSent.Load() + f.count.rawReceived.Load()
	wire := f.count.wireSent.Load() + f.count.wireReceived.Load()
	if raw >= fairBytes && wire > raw-raw/32 {
		return reason.Incompressible
	}
	return reason.None
}

func (f *flow) status() FlowStatus {
	s := FlowStatus{
		ID: f.id, Near: f.near, Client: f.client, Destination: f.destination, Peer: f.p.config().Name, RuleID: f.rule.ID,
		Reason: f.reason(), Codec: f.codec, Effort: codec.Effort(f.effort.Load()),
		RawSent: f.count.rawSent.Load(), WireSent: f.count.wireSent.Load(),
		RawReceived: f.count.rawReceived.Load(), WireReceived: f.count.wireReceived.Load(), Start: f.start,
	}
	f.mu.Lock()
	l := f.leg
	f.mu.Unlock()
	if l == nil {
		return s
	}
	s.LegCookie = l.sock.cookie
	if f.rule.WindowBytes == 0 {
		return s
	}
	// An error means that the socket is closed already.
	_ = l.sock.control(func(fd int) error {
		have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if err == nil {
			s.WindowBytes = uint32(have / 2) // the kernel doubles what is set
		}
		return err
	})
	return s
}
