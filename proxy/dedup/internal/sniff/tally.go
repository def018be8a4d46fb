// SPDX-License-Identifier: Apache-2.0

package sniff

import (
	"sync/atomic"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A Tally counts the bytes of an encoder, and tells from that why its flow gains nothing. It is safe for concurrent use.
type Tally struct {
	encrypted                 atomic.Bool
	raw, wire, refs, literals atomic.Uint64
}

// SetEncrypted notes that the flow is known to be encrypted; Encrypted tells whether it is.
func (t *Tally) SetEncrypted()   { t.encrypted.Store(true) }
func (t *Tally) Encrypted() bool { return t.encrypted.Load() }

// Count adds a payload of wire bytes for raw ones, of which refs were sent as references.
func (t *Tally) Count(raw, wire, refs int) {
	t.raw.Add(uint64(raw))
	t.wire.Add(uint64(wire))
	t.refs.Add(uint64(refs))
	t.literals.Add(uint64(raw - refs))
}

// CountAgain adds bytes of an answer to an ask.
func (t *Tally) CountAgain(wire int) { t.wire.Add(uint64(wire)) }

// Reason tells why the flow gains nothing: Encrypted, Incompressible, or None.
func (t *Tally) Reason() reason.Code {
	const enough = 64 << 10 // bytes after which a judgement is fair
	raw, wire := t.raw.Load(), t.wire.Load()
	switch {
	case t.encrypted.Load():
		return reason.Encrypted
	case raw >= enough && t.refs.Load() == 0 && wire > raw-raw/32:
		return reason.Incompressible
	}
	return reason.None
}

// Counters returns the totals so far.
func (t *Tally) Counters() codec.Counters {
	return codec.Counters{RawBytes: t.raw.Load(), WireBytes: t.wire.Load(), RefBytes: t.refs.Load(), LiteralBytes: t.literals.Load()}
}
