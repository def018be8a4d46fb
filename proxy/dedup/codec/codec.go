// SPDX-License-Identifier: Apache-2.0

// Package codec says what every codec of the engine is to the legs that use it: an encoder that turns one direction of a
// flow into payloads, and a decoder that turns payloads into bytes again. It knows none of them.
//
// A payload is what one DATA frame carries. Payloads of a direction are numbered from 0 by their order and arrive reliably;
// the decoder acknowledges how many it has turned into bytes. One that it cannot make for want of something that the
// encoder took it to hold is asked for, and the encoder answers with payloads of the codec's own kind.
package codec

import (
	"fmt"

	"github.com/trunkline/trunkline/bpf/reason"
)

const (
	// MaxBlock is the most raw bytes that Encode takes at once.
	MaxBlock = 1 << 20
	// MaxPayload is the most bytes that one payload takes.
	MaxPayload = MaxBlock + MaxBlock/16
	// MaxDetail is the most bytes in an ask's detail.
	MaxDetail = 4096
)

// Counters are running totals of an encoder, in bytes.
type Counters struct {
	RawBytes     uint64 // taken in
	WireBytes    uint64 // payloads given out, answers to asks included
	RefBytes     uint64 // raw bytes that were sent as references
	LiteralBytes uint64 // raw bytes that were not
}

// An Ask is what a decoder wants of the encoder at the other end.
type Ask struct {
	Block  uint64 // number of the payload that cannot be made
	Retire bool   // the histories differ: nothing sent so far may be referred to any more
	Detail []byte // what the codec has to say besides; at most MaxDetail bytes
}

// AskError tells that a payload cannot be made from what is held here: the caller sends the ask and goes on.
type AskError struct {
	Ask
	Err error // why
}

// Error implements error.
func (e *AskError) Error() string { return fmt.Sprintf("block %d is needed raw: %v", e.Block, e.Err) }

// Unwrap gives the cause.
func (e *AskError) Unwrap() error { return e.Err }

// An Encoder turns one direction of a flow into payloads. Encode and Resend must reach the wire in the order in which they
// were called, so they are best called by the one goroutine that writes to the leg; the rest may be called from any.
type Encoder interface {
	// Encode appends one payload for src, 1 to MaxBlock bytes, to dst.
	Encode(dst, src []byte) []byte
	// Ack tells that the peer has turned all payloads numbered below decoded into bytes.
	Ack(decoded uint64)
	// Resend answers an ask: it gives payloads to emit, in order. After an error the flow has to be reset.
	Resend(ask Ask, emit func(payload []byte) error) error
	// SetEffort says how much work new bytes are worth from the next payload on.
	SetEffort(Effort)
	// Rest gives back what the encoder can build again, because the flow is idle. The next payload needs no preparation.
	Rest()
	// Unacked returns the raw bytes that are not acknowledged.
	Unacked() int
	// Reason tells why the flow gains nothing: Encrypted, Incompressible, or None.
	Reason() reason.Code
	// Counters returns the totals so far.
	Counters() Counters
	// Close ends the direction. Nothing but Close, Ack, Reason and Counters may follow.
	Close()
}

// A Taker is an Encoder that can keep a block's bytes instead of a copy of them, for as long as the peer may ask for them.
type Taker interface {
	// EncodeTaking is Encode. With taken, src is the encoder's until it calls give with it, from any goroutine, or is closed.
	EncodeTaking(dst, src []byte, give func([]byte)) (out []byte, taken bool)
}

// A Decoder turns the payloads of one direction into bytes again. It belongs to one goroutine, but for Rest, which belongs to any.
type Decoder interface {
	// Decode returns the bytes that a payload leads to, valid until the next call. With an *AskError the caller asks the peer
	// and goes on; until the answer has come payloads may give no bytes (nil, nil), and the answer may give those of several.
	// After any other error the flow has to be reset.
	Decode(payload []byte) ([]byte, error)
	// Decoded returns the number of payloads turned into bytes so far: what to acknowledge.
	Decoded() uint64
	// Rest gives back what the decoder can build again, because the flow is idle.
	Rest()
	// Close gives back all that the decoder holds.
	Close()
}

// Effort is how much work is spent on bytes that the peer does not hold.
type Effort uint8

// The efforts, from the least to the most.
const (
	EffortRaw        Effort = iota // neither searched nor compressed, but remembered
	EffortReferences               // searched for what the peer holds, not compressed
	EffortFastest                  // compressed at the second stage's fastest level
	EffortDefault                  // as zstd -3
	EffortBetter                   // as zstd -7
	Efforts                        // how many there are
)

var efforts = [Efforts]string{"raw", "references", "fastest", "default", "better"}

// String returns the effort's name.
func (e Effort) String() string {
	if e < Efforts {
		return efforts[e]
	}
	return fmt.Sprintf("effort %d", uint8(e))
}
