// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Magic begins every HELLO.
const Magic = "TLNK"

// The version this package speaks. Agents with another major version do not work together; a higher minor version only
// adds fields at the end of messages, which older agents skip.
const (
	Major = 3
	Minor = 0
)

// Kinds of connections between peers.
const (
	KindControl = 1 // pings; shows that the peer is there
	KindLeg     = 2 // carries one flow
)

// ErrMalformed is a message that cannot be what its type says.
var ErrMalformed = errors.New("malformed message")

// VersionError is a HELLO of another major version.
type VersionError struct{ Major, Minor uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the peer speaks protocol version %d.%d, this agent %d.%d", e.Major, e.Minor, Major, Minor)
}

// Hello is the first frame in both directions.
type Hello struct {
	Major, Minor uint64
	Features     uint64 // bits; unknown ones are ignored
	Kind         uint64
	Instance     string
	Epoch        uint64   // of the sender's histories, which may outlive it; another one means that they are gone
	Run          uint64   // of the sender's process; another one means that what it had in memory is gone
	HistoryBytes uint64   // what the sender keeps of each group's history
	Credit       uint64   // raw bytes the sender takes on this leg before its first ACK; 0: it has no room
	Ports        []uint16 // the sender's own listeners, which nobody is to reach through it
}

// Append appends the message's payload to dst.
func (m *Hello) Append(dst []byte) []byte {
	dst = append(dst, Magic...)
	for _, v := range []uint64{m.Major, m.Minor, m.Features, m.Kind} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = appendString(dst, m.Instance)
	dst = binary.BigEndian.AppendUint64(dst, m.Epoch)
	dst = binary.BigEndian.AppendUint64(dst, m.Run)
	dst = binary.AppendUvarint(dst, m.HistoryBytes)
	dst = binary.AppendUvarint(dst, m.Credit)
	dst = binary.AppendUvarint(dst, uint64(len(m.Ports)))
	for _, p := range m.Ports {
		dst = binary.BigEndian.AppendUint16(dst, p)
	}
	return dst
}

// ParseHello reads a HELLO; of another major version it reads nothing but that and returns a *VersionError.
func ParseHello(b []byte) (Hello, error) {
	p := parser{b: b}
	if string(p.bytes(len(Magic))) != Magic {
		return Hello{}, fmt.Errorf("%w: HELLO does not begin with %s", ErrMalformed, Magic)
	}
	m := Hello{Major: p.uvarint(), Minor: p.uvarint()}
	if !p.bad && m.Major != Major {
		return m, &VersionError{m.Major, m.Minor}
	}
	m.Features, m.Kind = p.uvarint(), p.uvarint()
	m.Instance = p.string(255)
	m.Epoch, m.Run = p.uint64(), p.uint64()
	m.HistoryBytes, m.Credit = p.uvarint(), p.uvarint()
	n := p.uvarint()
	for i := uint64(0); i < n && i < 16 && !p.bad; i++ {
		m.Ports = append(m.Ports, p.uint16())
	}
	if n > 16 {
		p.bad = true
	}
	return m, p.err(TypeHello)
}

// Open asks the peer to dial a destination.
type Open struct {
	Flow        uint64         // the near agent's number of the flow
	After       uint64         // the flow to be dialled first, if it is on its way; 0: none
	Destination netip.AddrPort // where the application wanted to go
	Source      netip.AddrPort // where a direct connection would have come from; not valid: not known
	Group       string         // history group; empty: no history
	Codec       codec.Spec     // of both directions
	Flags       uint64         // none defined
}

// Append appends the message's payload to dst.
func (m *Open) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, m.Flow)
	dst = binary.AppendUvarint(dst, m.After)
	dst = appendAddrPort(dst, m.Destination)
	dst = appendAddrPort(dst, m.Source)
	dst = appendString(dst, m.Group)
	dst = append(dst, byte(m.Codec.Kind), byte(m.Codec.Stage))
	dst = binary.BigEndian.AppendUint16(dst, m.Codec.SegmentBytes)
	return binary.AppendUvarint(dst, m.Flags)
}

// ParseOpen reads an OPEN.
func ParseOpen(b []byte) (Open, error) {
	p := parser{b: b}
	m := Open{Flow: p.uvarint(), After: p.uvarint(), Destination: p.addrPort(), Source: p.addrPort(), Group: p.string(255)}
	m.Codec = codec.Spec{Kind: codec.Kind(p.byte()), Stage: codec.Stage(p.byte()), SegmentBytes: p.uint16()}
	m.Flags = p.uvarint()
	if !m.Destination.IsValid() {
		p.bad = true
	}
	return m, p.err(TypeOpen)
}

// Opened says that the destination accepted.
type Opened struct{ Local netip.AddrPort }

// Append appends the message's payload to dst.
func (m *Opened) Append(dst []byte) []byte { return appendAddrPort(dst, m.Local) }

// ParseOpened reads an OPENED.
func ParseOpened(b []byte) (Opened, error) {
	p := parser{b: b}
	m := Opened{Local: p.addrPort()}
	return m, p.err(TypeOpened)
}

// Class says in what way a dial failed, where the number of the error would mean something else on another system.
type Class uint64

// Classes of dial errors.
const (
	ClassNone        Class = 0
	ClassRefused     Class = 1
	ClassTimeout     Class = 2
	ClassUnreachable Class = 3
	ClassOther       Class = 4
)

// Refused says that the destination was not reached; the flow is over.
type Refused struct {
	Reason uint32 // a reason.Code
	Class  Class
	Text   string
}

// Append appends the message's payload to dst.
func (m *Refused) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Reason))
	dst = binary.AppendUvarint(dst, uint64(m.Class))
	return appendString(dst, m.Text)
}

// ParseRefused reads a REFUSED.
func ParseRefused(b []byte) (Refused, error) {
	p := parser{b: b}
	m := Refused{Reason: p.uint32(), Class: Class(p.uvarint()), Text: p.string(255)}
	return m, p.err(TypeRefused)
}

// Ack says what has been decoded and how much more may come. Both only ever grow.
type Ack struct {
	Blocks uint64 // blocks decoded and stored
	Credit uint64 // raw bytes, counted from the flow's start, that the receiver is willing to have got
}

// Append appends the message's payload to dst.
func (m *Ack) Append(dst []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, m.Blocks), m.Credit)
}

// ParseAck reads an ACK.
func ParseAck(b []byte) (Ack, error) {
	p := parser{b: b}
	m := Ack{Blocks: p.uvarint(), Credit: p.uvarint()}
	return m, p.err(TypeAck)
}

// Ask wants all blocks from one on once more, raw.
type Ask struct {
	Block  uint64
	Retire bool   // the history referred to is of no further use
	Detail []byte // what the flow's codec says besides; at most codec.MaxDetail bytes
}

// Append appends the message's payload to dst.
func (m *Ask) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, m.Block)
	retire := byte(0)
	if m.Retire {
		retire = 1
	}
	dst = binary.AppendUvarint(append(dst, retire), uint64(len(m.Detail)))
	return append(dst, m.Detail...)
}

// ParseAsk reads an ASK.
func ParseAsk(b []byte) (Ask, error) {
	p := parser{b: b}
	m := Ask{Block: p.uvarint(), Retire: p.byte() != 0, Detail: p.detail()}
	return m, p.err(TypeAsk)
}

// End ends the stream in one direction. Total is checked, so that no loss can pass for a clean end.
type End struct{ Total uint64 } // raw bytes

// Append appends the message's payload to dst.
func (m *End) Append(dst []byte) []byte { return binary.AppendUvarint(dst, m.Total) }

// ParseEnd reads an END.
func ParseEnd(b []byte) (End, error) {
	p := parser{b: b}
	m := End{Total: p.uvarint()}
	return m, p.err(TypeEnd)
}

// Reset ends a flow in both directions, uncleanly.
type Reset struct {
	Reason uint32 // a reason.Code; 0: the application or the server did it
	Text   string
}

// Append appends the message's payload to dst.
func (m *Reset) Append(dst []byte) []byte {
	return appendString(binary.AppendUvarint(dst, uint64(m.Reason)), m.Text)
}

// ParseReset reads a RESET.
func ParseReset(b []byte) (Reset, error) {
	p := parser{b: b}
	m := Reset{Reason: p.uint32(), Text: p.string(255)}
	return m, p.err(TypeReset)
}

// Ping is a PING, and the PONG that answers it.
type Ping struct{ Nonce uint64 }

// Append appends the message's payload to dst.
func (m *Ping) Append(dst []byte) []byte { return binary.BigEndian.AppendUint64(dst, m.Nonce) }

// ParsePing reads a PING or a PONG.
func ParsePing(b []byte) (Ping, error) {
	p := parser{b: b}
	m := Ping{Nonce: p.uint64()}
	return m, p.err(TypePing)
}
