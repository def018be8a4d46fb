// SPDX-License-Identifier: Apache-2.0

// Package policy turns rules into what the kernel looks up: the longest prefix of the other end gives a class, the class
// and the service's port give the rule. Everything a prefix inherits from wider ones is expanded here, so that two
// look-ups find exactly what the rules say.
package policy

import (
	"fmt"
	"net/netip"

	"github.com/trunkline/trunkline/bpf"
)

// SpliceMode says whether a rule's steered connections may use the sockmap fast path.
type SpliceMode uint8

// The splice modes: auto follows the kernel's self-test, force ignores it.
const (
	SpliceAuto SpliceMode = iota
	SpliceOff
	SpliceForce
)

// String returns the mode as the configuration writes it.
func (m SpliceMode) String() string {
	switch m {
	case SpliceOff:
		return "off"
	case SpliceForce:
		return "force"
	}
	return "auto"
}

// Rule is one rule of the configuration, with every default filled in.
type Rule struct {
	ID          uint32       // from 1, the rule's place in the configuration
	Name        string       // for people
	Line        int          // in the configuration file; 0: not from a file
	Remote      netip.Prefix // the other end, whoever connected
	Ports       []uint16     // the service's ports: remote of outgoing, local of incoming connections; empty: any
	Congestion  string       // "": leave the kernel's. With Auto: what a path gets that has no choice yet
	Auto        bool         // the congestion control is chosen for each path, see loader.SetChoices
	Window      WindowMode   // who decides on the windows
	Weight      uint8        // its share on a reserved path against that of other rules, 1 to MaxWeight; 0 is DefaultWeight
	WindowBytes uint32       // fixed receive window, with WindowFixed
	SndbufBytes uint32       // fixed send buffer; 0: the kernel's auto-tuning
	PacingBps   uint64       // bytes per second; 0: no cap
	Priority    bpf.Priority
	PeerID      uint32 // from 1; 0: not steered
	PeerName    string
	History     string // the group that shares a history, "none" for none
	// How the engine encodes what is steered, in its own words: the kernel side knows nothing of it.
	Codec, Stage string
	SegmentBytes uint16
	Splice       SpliceMode
	// Whose connections are not steered.
	ExcludeCgroups []string // paths below the cgroup2 mount
	ExcludeUsers   []string // names or numbers
}

// The bounds of the kernel's tables: half of max_entries in bpf/maps.h, since a reload has old and new side by side.
const (
	MaxClasses = 16384
	MaxEntries = 65536
	// MaxPacingBps is the highest rate in bytes per second that the kernel accepts from a BPF program (a 32-bit number).
	MaxPacingBps = 1<<32 - 2
	// maxCongestion is the longest name of a congestion control, in bytes.
	maxCongestion = 15
)

// mapped is where IPv4 lies in the 16-byte address space.
var mapped = netip.PrefixFrom(netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff}), 96)

// Normal returns the prefix masked, and as IPv4 where it lies within ::ffff:0:0/96; the invalid one if it is that.
func Normal(p netip.Prefix) netip.Prefix {
	if !p.IsValid() {
		return p
	}
	return normal(p)
}

// normal returns the prefix masked, and as IPv4 where it lies within ::ffff:0:0/96.
func normal(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// check refuses what the kernel could not hold or would silently change.
func check(r Rule) error {
	switch {
	case r.ID == 0:
		return fmt.Errorf("%s: rule id 0 is reserved", r.where())
	case !r.Remote.IsValid():
		return fmt.Errorf("%s: no remote prefix", r.where())
	case r.Remote.Addr().Zone() != "":
		return fmt.Errorf("%s: remote %s: a zone cannot be matched", r.where(), r.Remote)
	case len(r.Congestion) > maxCongestion:
		return fmt.Errorf("%s: congestion %q: longer than %d characters", r.where(), r.Congestion, maxCongestion)
	case r.PacingBps > MaxPacingBps:
		return fmt.Errorf("%s: a pacing rate above %d bytes per second cannot be set; leave it out", r.where(), uint64(MaxPacingBps))
	case r.Weight > MaxWeight:
		return fmt.Errorf("%s: weight %d is above %d", r.where(), r.Weight, MaxWeight)
	case r.WindowBytes > 0 && r.Mode() != WindowFixed:
		return fmt.Errorf("%s: a window of a fixed size cannot be %s, too", r.where(), r.Mode())
	case r.WindowBytes >= 1<<30 || r.SndbufBytes >= 1<<30:
		return fmt.Errorf("%s: a window of 1 GiB or more cannot be had", r.where())
	}
	for _, p := range r.Ports {
		if p == 0 {
			return fmt.Errorf("%s: port 0 does not exist", r.where())
		}
	}
	return nil
}

// where names a rule so that a person finds it.
func (r Rule) where() string {
	s := fmt.Sprintf("rule %d", r.ID)
	if r.Name != "" {
		s = "rule " + r.Name
	}
	if r.Line > 0 {
		s = fmt.Sprintf("line %d: %s", r.Line, s)
	}
	return s
}
