// SPDX-License-Identifier: Apache-2.0

// Package choice chooses a congestion control for each path by what flows met there: round-trip time, losses and how full the
// path was when they came, and what flows achieved. It is arithmetic on samples: who reads them and who sets algorithms is
// another's business, and time is whatever the caller says it is.
//
// An unknown path gets the prior: the strongest algorithm that yields to a queue. Losses then tell what the path is. Those that
// come while a queue stands are the path's own way to say that it is full; those that come whatever the queue are noise, and
// an algorithm that does not take them for congestion carries more. docs/architecture.md has the whole story.
package choice

import (
	"net/netip"
	"time"
)

// Path is what choices hang on: a destination prefix and, where there is one, the peer there.
type Path struct {
	Prefix netip.Prefix `json:"prefix"`
	Peer   string       `json:"peer,omitempty"` // "": none
}

// Flow is a live connection of a path, with its counters since it began.
type Flow struct {
	Cookie       uint64
	Path         Path
	Age          time.Duration
	Congestion   string // what the socket has
	SRTTUs       uint32
	RTTMinUs     uint32
	MSSBytes     uint32
	DeliveredBps uint64 // bytes per second, the kernel's latest sample
	BytesAcked   uint64
	SegsOut      uint32
	Retransmits  uint32 // segments
}

// Loss is a loss event: the first retransmission of a flow after what was in flight at the event before has been acknowledged.
type Loss struct {
	Cookie       uint64
	Path         Path
	At           time.Time
	SRTTUs       uint32
	RTTMinUs     uint32
	CwndPackets  uint32 // before the event
	DeliveredBps uint64 // bytes per second, the latest sample before the event
}

// Change is a choice that has changed, or, with New as Old, one that live flows begin anew with: their path has become longer.
type Change struct {
	Path     Path
	Old, New string // names of algorithms; Old is "" where there was no choice
	Why      string // for people, one clause
	At       time.Time
}

// Decision is what is chosen for a path now, and what it rests on.
type Decision struct {
	Path     Path
	Chosen   string
	Previous string // "": none
	Why      string
	Since    time.Time
	Updated  time.Time // when a flow of the path was last seen
	Class    Class
	RTTMinUs uint32
	RateBps  uint64   // bytes per second, the highest delivered rate seen lately
	LossRate float64  // retransmitted segments by segments sent, lately
	Changes  int      // within the last hour
	Renewals uint32   // how often live flows were told to begin anew with it
	History  []Change // the latest, the last of them last; not kept over a restart
}

// Class is what losses on a path come from.
type Class string

// The classes.
const (
	Unknown    Class = "unknown"    // too little seen
	Clean      Class = "clean"      // none come
	Congestive Class = "congestive" // a queue that fills
	Shallow    Class = "shallow"    // a queue that fills, much shorter than the round trip
	Variable   Class = "variable"   // a queue that fills, on a link whose rate varies
	Random     Class = "random"     // noise: they come whatever the queue
)
