// SPDX-License-Identifier: Apache-2.0

// Package proxy is the user-space engine: it takes steered connections from the kernel, carries each over a connection of
// its own (a leg) to the peer agent, and there on to the server. Bytes arrive exactly as they were sent, or the connection
// is reset; it never ends cleanly when something broke.
package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Original says where a steered connection wanted to go.
type Original struct {
	Destination netip.AddrPort
	Source      netip.AddrPort // where a direct connection would have come from; not valid: not known
	RuleID      uint32
}

// Kernel is what the engine needs of the programs in the kernel. Cookies are socket cookies (SO_COOKIE).
type Kernel interface {
	// TakeOriginal returns and forgets where a connection accepted from client wanted to go.
	TakeOriginal(client netip.AddrPort) (Original, bool)
	// Own declares a socket the agent's own, before it connects, and again when a leg is given a rule.
	Own(cookie uint64, ruleID uint32, leg bool) error
	Disown(cookie uint64)
	// Bypass lets connections to a destination go direct for a while.
	Bypass(dst netip.AddrPort, r reason.Code, d time.Duration)
	// SetPeer says whether connections may be steered to a peer.
	SetPeer(id uint32, up bool)
	// SpliceDone takes the application's end of a connection out of the sockmap.
	SpliceDone(client netip.AddrPort)
}

// Peer is another agent.
type Peer struct {
	ID      uint32
	Name    string
	Address string // host:port; empty: only it connects to us
	Key     string // "ed25519:BASE64", as Identity.Fingerprint prints it
	Allow   []Allow
	Codec   codec.Spec // of its rules that say nothing else; only shown
}

// Allow is a set of destinations that a peer may reach through this agent.
type Allow struct {
	Prefix netip.Prefix
	Ports  []uint16 // none: every port
}

// HistoryNone as a rule's History switches history off for its flows.
const HistoryNone = "none"

// Rule is what the engine needs to know of a rule.
type Rule struct {
	ID          uint32
	Name        string
	PeerID      uint32 // 0: no deduplication
	History     string // group; empty: the rule's own; HistoryNone: no history
	Codec       codec.Spec
	Congestion  string // empty: leave the kernel's
	PacingBps   uint64 // bytes per second; 0: no cap
	WindowBytes uint32 // receive window of the legs; 0: the kernel's auto-tuning
}

// group returns the name of the history group that the rule's flows share; empty: no history.
func (r Rule) group() string {
	switch r.History {
	case HistoryNone:
		return ""
	case "":
		return r.Name
	}
	return r.History
}

// RuleFor finds the rule of a connection by its other end: remote as the application sees it, port of the service.
type RuleFor func(remote netip.Addr, port uint16) (Rule, bool)

// Config is what an engine is made of. Zero fields take the defaults given.
type Config struct {
	Instance     string
	Identity     *Identity
	Listen       string // host:port where peers connect; empty: nowhere
	Peers        []Peer
	Rules        []Rule
	RuleFor      RuleFor // nil: rules are found by the id that the kernel gives
	Kernel       Kernel
	HistoryBytes int64  // of all histories in memory, with their margins and without their indexes; segments of the WANProxy codecs take as much again at most; 256 MiB
	HistoryDisk  int64  // bytes of all histories' files; 1 GiB
	HistoryDir   string // where they are kept; empty: in memory
	BufferBytes  int64  // undelivered bytes of all flows together; 512 MiB
	WarmLegs     int    // kept ready for each peer; 6
	MaxFlows     int    // with each peer, each way; 16384
	Timeouts     Timeouts
	Log          *slog.Logger
}

// Timeouts of the engine, changeable for tests.
type Timeouts struct {
	Handshake time.Duration // TLS and HELLO of an accepted connection; 5 s
	Leg       time.Duration // dialling a leg; 3 s
	Turn      time.Duration // for a connection's turn to have a leg dialled, when many come at once; 15 s
	Open      time.Duration // the peer's answer to OPEN, besides the round trip; 3 s
	Dial      time.Duration // the far agent's dial of a destination; 2.5 s
	Ping      time.Duration // between pings; 1 s
	Pong      time.Duration // without a pong the peer is down; 3 s
	Redial    time.Duration // longest wait before a control connection is dialled again; 2 s
	Bypass    time.Duration // a destination goes direct after a failure; 30 s
	LegAge    time.Duration // an idle leg is replaced; 3 min
	Finish    time.Duration // for the end of a leg after its flow; 10 s
	Ask       time.Duration // for the answer to an ASK; 10 s
	AckDelay  time.Duration // an ACK waits for company; 5 ms
	Splice    time.Duration // an application's end stays in the sockmap; 2 s
	Rest      time.Duration // a flow without traffic gives up what its codec can build again; 10 s
}

func (t *Timeouts) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Handshake, 5 * time.Second}, {&t.Leg, 3 * time.Second}, {&t.Turn, 15 * time.Second}, {&t.Open, 3 * time.Second},
		{&t.Dial, 2500 * time.Millisecond}, {&t.Ping, time.Second}, {&t.Pong, 3 * time.Second},
		{&t.Redial, 2 * time.Second}, {&t.Bypass, 30 * time.Second}, {&t.LegAge, 3 * time.Minute},
		{&t.Finish, 10 * time.Second}, {&t.Ask, 10 * time.Second}, {&t.AckDelay, 5 * time.Millisecond},
		{&t.Splice, 2 * time.Second}, {&t.Rest, 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

func (c *Config) setDefaults() error {
	if c.Identity == nil || c.Kernel == nil {
		return errors.New("engine needs an identity and a kernel side")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = 256 << 20
	}
	if c.HistoryDisk == 0 {
		c.HistoryDisk = 1 << 30
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = 512 << 20
	}
	if c.WarmLegs == 0 {
		c.WarmLegs = 6
	}
	if c.MaxFlows == 0 {
		c.MaxFlows = 16384
	}
	c.Timeouts.setDefaults()
	return nil
}

// checkPeers finds what would make two peers indistinguishable.
func checkPeers(peers []Peer) error {
	ids, keys := map[uint32]string{}, map[string]string{}
	for _, p := range peers {
		key, err := parseKey(p.Key)
		if err != nil {
			return fmt.Errorf("peer %s: %w", p.Name, err)
		}
		if other, ok := keys[string(key)]; ok {
			return fmt.Errorf("peers %s and %s have the same key", other, p.Name)
		}
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			return fmt.Errorf("peer %s: id %d is taken by %q or not valid", p.Name, p.ID, other)
		}
		keys[string(key)], ids[p.ID] = p.Name, p.Name
	}
	return nil
}
