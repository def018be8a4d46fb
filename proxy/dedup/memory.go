// SPDX-License-Identifier: Apache-2.0

// Package dedup brings a flow's codec and what it shares with the other flows of a peer together. The codecs are in native and
// wanproxy; codec says what a codec is.
package dedup

import (
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/native"
	"github.com/trunkline/trunkline/proxy/dedup/wanproxy"
	"github.com/trunkline/trunkline/proxy/history"
)

// Memory is what this end remembers of one peer, both directions, for all codecs. It is safe for concurrent use.
type Memory struct {
	Senders   *history.Senders
	Receivers *history.Receivers

	sent, received *wanproxy.Caches
}

// NewMemory makes the memory for a peer with a public key, with what the store keeps of it. Segments are those of the WANProxy
// codecs.
func NewMemory(s *history.Store, segments *wanproxy.Store, key []byte) *Memory {
	m := &Memory{}
	m.Senders, m.Receivers = s.Peer(key)
	m.sent, m.received = segments.Peer()
	return m
}

// SetPeer tells which histories are at the other end, which run of the peer's process, and how many bytes its histories take, 0 if that
// is not known.
func (m *Memory) SetPeer(epoch, run uint64, bytes int64) {
	m.Senders.SetPeerEpoch(epoch)
	m.Senders.SetPeerBound(bytes)
	m.Receivers.SetPeerEpoch(epoch)
	m.sent.SetPeer(run, bytes)
	m.received.SetPeer(run, bytes)
}

// SegmentBytes returns the memory that the segments of the WANProxy codecs take, in bytes.
func (m *Memory) SegmentBytes() int64 { return m.sent.HeldBytes() + m.received.HeldBytes() }

// Encoder makes a flow's encoder of a spec that has been checked. Without a group ("") it refers to nothing.
func (m *Memory) Encoder(s codec.Spec, group string) codec.Encoder {
	if s.Kind != codec.Native {
		return wanproxy.NewEncoder(with(m.sent, group), group, s)
	}
	var log *history.Sender
	if group != "" {
		log = m.Senders.Group(group)
	}
	return native.NewEncoder(log, native.Options{Stage: s.Stage})
}

// Decoder makes a flow's decoder of a spec that has been checked. Without a group ("") it follows no references.
func (m *Memory) Decoder(s codec.Spec, group string) codec.Decoder {
	if s.Kind != codec.Native {
		return wanproxy.NewDecoder(with(m.received, group), group, s)
	}
	var logs *history.Receivers
	if group != "" {
		logs = m.Receivers
	}
	return native.NewDecoder(logs, group)
}

// with gives the caches, or none without a group.
func with(c *wanproxy.Caches, group string) *wanproxy.Caches {
	if group == "" {
		return nil
	}
	return c
}
