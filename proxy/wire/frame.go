// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol that two agents speak inside a TLS stream: frames of a type byte, a length and a payload,
// and the messages in them. It knows nothing of sockets, codecs or policy.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Type is the first byte of a frame.
type Type uint8

// The frame types. Numbers are part of the protocol: they are never reused.
const (
	TypeHello   Type = 1
	TypeOpen    Type = 2
	TypeOpened  Type = 3
	TypeRefused Type = 4
	TypeData    Type = 5
	TypeAck     Type = 6
	TypeAsk     Type = 7
	TypeEnd     Type = 8
	TypeReset   Type = 9
	TypePing    Type = 10
	TypePong    Type = 11
	TypeRanges  Type = 12
)

// MaxBlock is the most raw bytes one DATA frame stands for.
const MaxBlock = codec.MaxBlock

// maxPayload bounds each type's payload in bytes. It is asked before a buffer is made, so that a peer cannot make this
// agent allocate more than the largest frame that has a meaning.
var maxPayload = [...]int{
	TypeHello:   2048,
	TypeOpen:    512,
	TypeOpened:  64,
	TypeRefused: 512,
	TypeData:    codec.MaxPayload,
	TypeAck:     64,
	TypeAsk:     64 + codec.MaxDetail,
	TypeEnd:     64,
	TypeReset:   512,
	TypePing:    64,
	TypePong:    64,
	TypeRanges:  512 + 18*MaxRanges,
}

var names = [...]string{
	TypeHello: "HELLO", TypeOpen: "OPEN", TypeOpened: "OPENED", TypeRefused: "REFUSED", TypeData: "DATA", TypeAck: "ACK",
	TypeAsk: "ASK", TypeEnd: "END", TypeReset: "RESET", TypePing: "PING", TypePong: "PONG",
	TypeRanges: "RANGES",
}

// String returns the type's name as in the protocol's description.
func (t Type) String() string {
	if int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// MaxPayload returns the largest payload of a type in bytes; ok is false for a type that is not known.
func MaxPayload(t Type) (bytes int, ok bool) {
	if int(t) >= len(maxPayload) || maxPayload[t] == 0 {
		return 0, false
	}
	return maxPayload[t], true
}

// Errors of a stream that does not keep to the protocol. The connection is of no further use after either.
var (
	ErrUnknownType = errors.New("unknown frame type")
	ErrTooLong     = errors.New("frame is longer than its type allows")
)

// ReadHeader reads a frame's type and payload length. A stream that ends between frames gives io.EOF, one that ends
// inside a header io.ErrUnexpectedEOF.
func ReadHeader(r *bufio.Reader) (Type, int, error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	t := Type(b)
	limit, ok := MaxPayload(t)
	if !ok {
		return t, 0, fmt.Errorf("%w: %d", ErrUnknownType, b)
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return t, 0, fmt.Errorf("reading the length of %v: %w", t, err)
	}
	if n > uint64(limit) {
		return t, 0, fmt.Errorf("%w: %v of %d bytes, at most %d", ErrTooLong, t, n, limit)
	}
	return t, int(n), nil
}

// ReadFrame reads one frame. The payload is in buf where that is large enough, else in a new buffer.
func ReadFrame(r *bufio.Reader, buf []byte) (Type, []byte, error) {
	t, n, err := ReadHeader(r)
	if err != nil {
		return t, nil, err
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return t, nil, fmt.Errorf("reading %v: %w", t, err)
	}
	return t, buf, nil
}

// HeaderRoom is how many bytes Seal needs free in front of a payload.
const HeaderRoom = 1 + 4

// Seal makes a frame of a buffer whose first HeaderRoom bytes are free and whose rest is the payload, without moving the
// payload. The frame is a part of buf.
func Seal(t Type, buf []byte) []byte {
	n := len(buf) - HeaderRoom
	size := uvarintLen(uint64(n))
	start := HeaderRoom - 1 - size
	buf[start] = byte(t)
	binary.PutUvarint(buf[start+1:], uint64(n))
	return buf[start:]
}

// AppendFrame appends a whole frame to dst.
func AppendFrame(dst []byte, t Type, payload []byte) []byte {
	dst = append(dst, byte(t))
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	return append(dst, payload...)
}

func uvarintLen(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}
