// SPDX-License-Identifier: Apache-2.0

package control

import (
	"net/netip"
	"time"
)

// Auto is how congestion controls are chosen for paths of rules that leave the choice to the agent.
type Auto struct {
	DryRun      bool           `json:"dry_run"` // choices are only told: flows keep the kernel's default
	Explore     bool           `json:"explore"`
	HoldSeconds float64        `json:"hold_s"` // how long a choice stays at least
	Prior       string         `json:"prior"`  // what a path gets that nothing is known of; "": the kernel's default
	Candidates  []Candidate    `json:"candidates"`
	Paths       int            `json:"paths"`                 // with a choice
	Chosen      map[string]int `json:"chosen"`                // paths by what is chosen
	Changes     uint64         `json:"changes"`               // of choices, since the agent started
	LossDropped uint64         `json:"loss_dropped"`          // loss events that there was no room for, since the agent started
	StateError  string         `json:"state_error,omitempty"` // why choices are not kept over a restart
}

// Candidate is an algorithm that may be chosen, and whether the kernel has it now.
type Candidate struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"` // it is not usable
	Remedy string `json:"remedy,omitempty"`
}

// Choice is the congestion control chosen for a path, and what the choice rests on.
type Choice struct {
	Prefix   netip.Prefix `json:"prefix"`
	Peer     string       `json:"peer,omitempty"` // whose legs follow it; "": the applications' own connections
	Chosen   string       `json:"chosen"`
	Previous string       `json:"previous,omitempty"`
	Why      string       `json:"why"`
	Since    time.Time    `json:"since"`
	Updated  time.Time    `json:"updated"` // when a flow of the path was last seen
	Class    string       `json:"class"`   // what losses there come from
	MinRTT   uint32       `json:"rtt_min_us"`
	RateBps  uint64       `json:"rate_Bps"`   // bytes per second, the highest seen lately
	LossRate float64      `json:"loss_rate"`  // segments sent again by segments sent, lately
	Changes  int          `json:"changes_1h"` // within the last hour
	DryRun   bool         `json:"dry_run"`    // it is what would be chosen
	Renewals uint32       `json:"renewals"`   // how often live flows were told to begin anew: the path had become longer
	History  []Change     `json:"history"`    // since the agent started, the latest at most, in order
}

// Change is a choice that changed, or, with New as Old, one that live flows were told to begin anew with.
type Change struct {
	Old string    `json:"old"`
	New string    `json:"new"`
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// AutoExplanation says what auto means for a connection.
type AutoExplanation struct {
	Auto
	Asked   bool         `json:"asked"`            // an agent was: without one nothing is known of paths and kernel
	Path    netip.Prefix `json:"path"`             // of connections that go direct
	Exempt  string       `json:"exempt,omitempty"` // why no congestion control is chosen for the destination
	New     string       `json:"new"`              // what a new direct connection is given; "": the kernel's default
	Choices []Choice     `json:"choices"`          // of the path, and of the legs to the rule's peer
}
