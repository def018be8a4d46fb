// SPDX-License-Identifier: Apache-2.0

// Package dedup brings a flow's codec and what it shares with the other flows of a peer together. The codecs are in native and
// wanproxy; codec says what a codec is.
package dedup

import (
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/native"
	"github.com/trunkline/trunkline/proxy/history"
)

// Memory is what this end remembers of one peer, both directions, for all codecs. It is safe for concurrent use.
type Memory struct {
	Senders   *history.Senders
	Receivers *history.Receivers
}

// NewMemory makes the memory for a peer with a public key, with what the store keeps of it.
func NewMemory(s *history.Store, key []byte) *Memory {
	m := &Memory{}
	m.Senders, m.Receivers = s.Peer(key)
	return m
}

// Encoder makes a flow's encoder of a spec that has been checked. Without a group ("") it refers to nothing.
func (m *Memory) Encoder(s codec.Spec, group string) codec.Encoder {
	var log *history.Sender
	if group != "" {
		log = m.Senders.Group(group)
	}
	return native.NewEncoder(log, native.Options{Stage: s.Stage})
}

// Decoder makes a flow's decoder of a spec that has been checked. Without a group ("") it follows no references.
func (m *Memory) Decoder(s codec.Spec, group string) codec.Decoder {
	var logs *history.Receivers
	if group != "" {
		logs = m.Receivers
	}
	return native.NewDecoder(logs, group)
}
