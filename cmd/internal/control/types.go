// SPDX-License-Identifier: Apache-2.0

// Package control is how the command line speaks with a running agent: HTTP and JSON over a unix socket. Whoever may open
// the socket may read; changes are for root.
package control

import (
	"net/netip"
	"time"
)

// Health sums a Status up in one word.
type Health string

// The states of health.
const (
	Healthy  Health = "ok"
	Degraded Health = "degraded" // something wants attention; see Problems
	Draining Health = "draining" // no new connections are steered
)

// Status is the agent as a whole.
type Status struct {
	Instance      string    `json:"instance"`
	Health        Health    `json:"health"`
	Problems      []string  `json:"problems"` // what wants attention, a line each
	Version       string    `json:"version"`
	Protocol      int       `json:"protocol"` // of the peers
	Kernel        string    `json:"kernel"`
	PID           int       `json:"pid"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptime_s"`
	Config        string    `json:"config"` // path
	ConfigLoaded  time.Time `json:"config_loaded"`
	Cgroup        string    `json:"cgroup"`
	Listen        []string  `json:"listen"`
	Rules         int       `json:"rules"`
	ActiveFlows   int       `json:"active_flows"`   // in the engine, both ways
	Auto          *Auto     `json:"auto,omitempty"` // nil: no rule leaves the choice of its congestion control to the agent
	History       History   `json:"history"`
	Features      []Feature `json:"features"`
	Peers         []Peer    `json:"peers"`
	Reasons       []Reason  `json:"reasons"` // those with a count
}

// Feature is one thing the kernel side can do, or why it does not.
type Feature struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// Reason is how often flows that a dedup rule matched were not optimised, and why.
type Reason struct {
	Code     uint32 `json:"code"`
	Name     string `json:"name"`
	Intended bool   `json:"intended"`
	Count    uint64 `json:"count"` // since the agent started
	Meaning  string `json:"meaning"`
	Action   string `json:"action"`
}

// Peer is another agent, as seen from this one. Raw bytes are the applications', wire bytes what crossed the WAN for them.
type Peer struct {
	ID              uint32    `json:"id"`
	Name            string    `json:"name"`
	Address         string    `json:"address"` // "": it connects to us
	Up              bool      `json:"up"`
	Since           time.Time `json:"since"` // of the present state
	Reason          string    `json:"reason,omitempty"`
	Detail          string    `json:"detail,omitempty"` // why it is down, in words
	RTTMicroseconds int64     `json:"rtt_us"`
	Version         string    `json:"version,omitempty"`
	LegsWarm        int       `json:"legs_warm"`
	LegsUsed        int       `json:"legs_used"`
	FlowsOpened     uint64    `json:"flows_opened"`   // steered here and carried to the peer, since the start
	FlowsAccepted   uint64    `json:"flows_accepted"` // carried for the peer
	RawSent         uint64    `json:"raw_sent_bytes"`
	WireSent        uint64    `json:"wire_sent_bytes"`
	RawReceived     uint64    `json:"raw_received_bytes"`
	WireReceived    uint64    `json:"wire_received_bytes"`
	History         uint64    `json:"history_bytes"` // held in memory for this peer, both directions
	HistoryDisk     uint64    `json:"history_disk_bytes"`
	Codec           string    `json:"codec"`  // of rules through this peer that say nothing else, as "native+zstd"
	Codecs          []string  `json:"codecs"` // that the peer can decode; empty: not met yet
}

// Flow is one TCP connection that a rule or the engine knows.
type Flow struct {
	Cookie           uint64         `json:"cookie"` // of the socket; 0: the engine's own account only
	Kind             string         `json:"kind"`   // plain, steered, leg or dialled
	Passive          bool           `json:"passive"`
	Local            netip.AddrPort `json:"local"`
	Remote           netip.AddrPort `json:"remote"` // steered: the destination the application asked for
	RuleID           uint32         `json:"rule_id"`
	Rule             string         `json:"rule"`
	Peer             string         `json:"peer,omitempty"`
	Reason           string         `json:"reason,omitempty"` // why it is not optimised
	State            string         `json:"state"`
	AgeSeconds       float64        `json:"age_s"`
	Congestion       string         `json:"congestion"`
	CongestionError  string         `json:"congestion_error,omitempty"`
	Auto             bool           `json:"auto"`             // it follows the choice of its path
	Choice           *Choice        `json:"choice,omitempty"` // of its path; nil: none yet, or none is asked for
	LossEvents       uint32         `json:"loss_events"`      // retransmissions of one window count once
	Priority         string         `json:"priority"`
	WindowBytes      uint32         `json:"window_bytes"` // fixed receive window; 0: auto
	WindowError      string         `json:"window_error,omitempty"`
	Window           string         `json:"window"`                         // the mode: kernel, fixed, auto or reserved
	WindowWhy        string         `json:"window_why,omitempty"`           // why it has not all that the mode gives
	InitialPackets   uint32         `json:"initial_packets,omitempty"`      // the initial congestion window set; 0: the kernel's
	Reservation      string         `json:"reservation,omitempty"`          // in force for the flow
	ShareBps         uint64         `json:"share_Bps,omitempty"`            // bytes per second of the link layer that it may send
	ReceiveBps       uint64         `json:"receive_Bps,omitempty"`          // and that it makes room for
	PacingBps        uint64         `json:"pacing_Bps,omitempty"`           // bytes per second of payload, as set for the share
	CwndMost         uint32         `json:"cwnd_most_packets,omitempty"`    // as set for the share
	AdvertiseMost    uint32         `json:"advertise_most_bytes,omitempty"` // of the window, as set for the share; 0: the buffer's
	CwndPackets      uint32         `json:"cwnd_packets"`
	SSThreshPackets  uint32         `json:"ssthresh_packets"` // 0: none yet
	MSSBytes         uint32         `json:"mss_bytes"`
	SRTTMicroseconds uint32         `json:"srtt_us"`
	MinRTT           uint32         `json:"rtt_min_us"`
	DeliveredBps     uint64         `json:"delivered_Bps"` // bytes per second, the kernel's latest sample
	BytesAcked       uint64         `json:"bytes_acked"`
	BytesReceived    uint64         `json:"bytes_received"`
	SegmentsOut      uint32         `json:"segs_out"`
	Retransmits      uint32         `json:"retransmits"` // segments
	Marked           uint64         `json:"marked"`      // packets
	Engine           *EngineFlow    `json:"engine,omitempty"`

	// Algorithm is what a congestion control of trunkline's own keeps of the flow, by name with the unit: Illinois' alpha,
	// Westwood's bandwidth_Bps and so on.
	Algorithm map[string]float64 `json:"algorithm,omitempty"`
}

// Path is what was measured towards one destination prefix, over all connections of rules since the path was first seen.
// Paths age: those used least make room.
type Path struct {
	Prefix           netip.Prefix `json:"prefix"`
	Peer             string       `json:"peer,omitempty"` // whose legs these are; "": the applications' own connections
	Flows            uint64       `json:"flows"`
	SRTTMicroseconds uint32       `json:"srtt_us"` // moving average
	MinRTT           uint32       `json:"rtt_min_us"`
	DeliveredBps     uint64       `json:"delivered_Bps"` // bytes per second, moving average
	BytesAcked       uint64       `json:"bytes_acked"`
	BytesReceived    uint64       `json:"bytes_received"`
	SegmentsOut      uint64       `json:"segs_out"`
	Retransmits      uint64       `json:"retransmits"` // segments
	IdleSeconds      float64      `json:"idle_s"`      // since the latest measurement
	Choice           *Choice      `json:"choice,omitempty"`
}

// EngineFlow is what the engine counts of a steered connection, or of one it dialled for a peer.
type EngineFlow struct {
	ID           uint64 `json:"id"`
	Direct       bool   `json:"direct"`         // carried to the destination itself, without the peer
	RawSent      uint64 `json:"raw_sent_bytes"` // towards the peer
	WireSent     uint64 `json:"wire_sent_bytes"`
	RawReceived  uint64 `json:"raw_received_bytes"`
	WireReceived uint64 `json:"wire_received_bytes"`
	Codec        string `json:"codec,omitempty"`  // in use, as "native+zstd"; "": none, as it is carried without the peer
	Effort       string `json:"effort,omitempty"` // that is spent now on bytes that the peer does not hold
}

// Explanation says which rule applies to an address and port, and why.
type Explanation struct {
	Remote  netip.AddrPort `json:"remote"`
	Matched bool           `json:"matched"`
	RuleID  uint32         `json:"rule_id,omitempty"`
	Rule    string         `json:"rule,omitempty"`
	Line    int            `json:"line,omitempty"`
	Steps   []Step         `json:"steps"`
	Gets    []Setting      `json:"gets"` // what a flow under the rule gets

	Auto *AutoExplanation `json:"auto,omitempty"` // nil: the rule does not leave the choice of its congestion control to the agent
}

// Step is one rule that was looked at.
type Step struct {
	Rule    string `json:"rule"`
	Line    int    `json:"line"`
	Match   string `json:"match"`
	Applies bool   `json:"applies"`
	Why     string `json:"why"`
}

// Setting is one thing a rule gives.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Reloaded is what a reload did.
type Reloaded struct {
	Rules    int      `json:"rules"`
	Peers    int      `json:"peers"`
	Warnings []string `json:"warnings"`
}
