// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

func TestFrameRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 16383, 16384, MaxBlock} {
		payload := bytes.Repeat([]byte{7}, n)
		plain := AppendFrame(nil, TypeData, payload)
		sealed := Seal(TypeData, append(make([]byte, HeaderRoom), payload...))
		if !bytes.Equal(plain, sealed) {
			t.Fatalf("%d bytes: Seal and AppendFrame differ", n)
		}
		typ, got, err := ReadFrame(bufio.NewReader(bytes.NewReader(sealed)), nil)
		if err != nil || typ != TypeData || !bytes.Equal(got, payload) {
			t.Fatalf("%d bytes: read %v, %d bytes, %v", n, typ, len(got), err)
		}
	}
}

func TestFrameErrors(t *testing.T) {
	long := binary.AppendUvarint([]byte{byte(TypePing)}, 65)
	huge := binary.AppendUvarint([]byte{byte(TypeData)}, 1<<62)
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"nothing", nil, io.EOF},
		{"type only", []byte{byte(TypeData)}, io.ErrUnexpectedEOF},
		{"no payload", []byte{byte(TypeData), 5}, io.ErrUnexpectedEOF},
		{"half a payload", []byte{byte(TypeData), 5, 1, 2}, io.ErrUnexpectedEOF},
		{"type 0", []byte{0, 0}, ErrUnknownType},
		{"unknown type", []byte("GET / HTTP/1.1\r\n"), ErrUnknownType},
		{"too long", long, ErrTooLong},
		{"huge", huge, ErrTooLong},
	} {
		if _, _, err := ReadFrame(bufio.NewReader(bytes.NewReader(c.in)), nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestMessages(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("10.1.2.3:80"), netip.MustParseAddrPort("[2001:db8::1]:5432")
	hello := Hello{Major: Major, Minor: 3, Features: 1 << 63, Kind: KindLeg, Instance: "default", Epoch: 1 << 60, Run: 1 << 59,
		HistoryBytes: 1 << 40, Credit: 4 << 20, Ports: []uint16{4820, 1}}
	check(t, hello, hello.Append(nil), ParseHello)
	open := Open{Flow: 9, After: 8, Destination: v6, Source: v4, Group: "web",
		Codec: codec.Spec{Kind: codec.WANProxy2, Stage: codec.Zlib, SegmentBytes: 512}}
	check(t, open, open.Append(nil), ParseOpen)
	bare := Open{Flow: 9, Destination: v4}
	check(t, bare, bare.Append(nil), ParseOpen)
	opened := Opened{v4}
	check(t, opened, opened.Append(nil), ParseOpened)
	refused := Refused{2, ClassRefused, "connection refused"}
	check(t, refused, refused.Append(nil), ParseRefused)
	ack := Ack{1 << 40, 1 << 50}
	check(t, ack, ack.Append(nil), ParseAck)
	ask := Ask{77, true, nil}
	check(t, ask, ask.Append(nil), ParseAsk)
	ask.Detail = []byte("hash")
	check(t, ask, ask.Append(nil), ParseAsk)
	end := End{1 << 33}
	check(t, end, end.Append(nil), ParseEnd)
	reset := Reset{19, "leg failed"}
	check(t, reset, reset.Append(nil), ParseReset)
	ranges := Ranges{Kind: RangesHold, Group: "web", Generation: 1 << 60, Head: 1 << 40, Spans: []Span{{0, 1}, {5, 1 << 30}, {1 << 39, 1 << 40}}}
	check(t, ranges, ranges.Append(nil), ParseRanges)
	all := Ranges{Kind: RangesEnd}
	check(t, all, all.Append(nil), ParseRanges)
	ping := Ping{42}
	check(t, ping, ping.Append(nil), ParsePing)
}

// check parses a message, with fields of a later version behind it, and every prefix of it.
func check[M any](t *testing.T, want M, payload []byte, parse func([]byte) (M, error)) {
	t.Helper()
	got, err := parse(append(payload[:len(payload):len(payload)], 1, 2, 3))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%T: got %+v, %v, want %+v", want, got, err, want)
	}
	for i := range payload {
		if _, err := parse(payload[:i]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%T cut to %d of %d bytes: %v", want, i, len(payload), err)
		}
	}
}

// TestBadRanges: what a receiver could not hold is not taken.
func TestBadRanges(t *testing.T) {
	for name, m := range map[string]Ranges{
		"no kind":         {Group: "g"},
		"no group":        {Kind: RangesHold},
		"empty span":      {Kind: RangesHold, Group: "g", Head: 10, Spans: []Span{{5, 5}}},
		"beyond the head": {Kind: RangesHold, Group: "g", Head: 10, Spans: []Span{{5, 11}}},
		"overlapping":     {Kind: RangesHold, Group: "g", Head: 10, Spans: []Span{{5, 7}, {6, 8}}},
		"too far":         {Kind: RangesLack, Group: "g", Head: 1<<62 + 1},
		"too many":        {Kind: RangesHold, Group: "g", Head: 1 << 62, Spans: make([]Span, MaxRanges+1)},
	} {
		if _, err := ParseRanges(m.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := Ranges{Kind: RangesHold, Group: strings.Repeat("g", 255), Generation: 1<<64 - 1, Head: 1 << 62}
	for i := range uint64(MaxRanges) {
		full.Spans = append(full.Spans, Span{i<<50 + 1, i<<50 + 1<<49})
	}
	limit, _ := MaxPayload(TypeRanges)
	if b := full.Append(nil); len(b) > limit {
		t.Errorf("the largest RANGES takes %d bytes, %d are allowed", len(b), limit)
	}
}

func TestVersionSkew(t *testing.T) {
	other := Hello{Major: Major + 1, Minor: 5}
	var version *VersionError
	if _, err := ParseHello(other.Append(nil)); !errors.As(err, &version) || version.Major != Major+1 {
		t.Fatalf("other major version: %v", err)
	}
	// A later major version may look altogether different behind its number.
	if _, err := ParseHello(append([]byte(Magic), Major+1, 0)); !errors.As(err, &version) {
		t.Fatalf("short HELLO of another version: %v", err)
	}
}

func TestTextIsCleaned(t *testing.T) {
	m := Reset{Text: "a\nb\x1b[31m\xff" + strings.Repeat("x", 300)}
	got, err := ParseReset(m.Append(nil))
	if err != nil || strings.ContainsAny(got.Text, "\n\x1b\xff") || !strings.HasPrefix(got.Text, "a?b?[31m?") {
		t.Fatalf("%q, %v", got.Text, err)
	}
}

func FuzzReadFrame(f *testing.F) {
	hello := Hello{Major: Major, Ports: []uint16{1}}
	f.Add(AppendFrame(nil, TypeHello, hello.Append(nil)))
	open := Open{Destination: netip.MustParseAddrPort("[::1]:1"), Group: "g"}
	f.Add(AppendFrame(AppendFrame(nil, TypeOpen, open.Append(nil)), TypeData, []byte("abc")))
	refused := Refused{Text: "no"}
	f.Add(AppendFrame(nil, TypeRefused, refused.Append(nil)))
	f.Add([]byte{byte(TypeData), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			typ, payload, err := ReadFrame(r, nil)
			if err != nil {
				return
			}
			if limit, ok := MaxPayload(typ); !ok || len(payload) > limit {
				t.Fatalf("%v of %d bytes passed", typ, len(payload))
			}
			parseAny(t, typ, payload)
		}
	})
}

// parseAny parses a payload and, where that works, checks that the message survives being written and read again.
func parseAny(t *testing.T, typ Type, b []byte) {
	switch typ {
	case TypeHello:
		again(t, b, ParseHello, func(m Hello) []byte { return m.Append(nil) })
	case TypeOpen:
		again(t, b, ParseOpen, func(m Open) []byte { return m.Append(nil) })
	case TypeOpened:
		again(t, b, ParseOpened, func(m Opened) []byte { return m.Append(nil) })
	case TypeRefused:
		again(t, b, ParseRefused, func(m Refused) []byte { return m.Append(nil) })
	case TypeAck:
		again(t, b, ParseAck, func(m Ack) []byte { return m.Append(nil) })
	case TypeAsk:
		again(t, b, ParseAsk, func(m Ask) []byte { return m.Append(nil) })
	case TypeEnd:
		again(t, b, ParseEnd, func(m End) []byte { return m.Append(nil) })
	case TypeReset:
		again(t, b, ParseReset, func(m Reset) []byte { return m.Append(nil) })
	case TypeRanges:
		again(t, b, ParseRanges, func(m Ranges) []byte { return m.Append(nil) })
	case TypePing, TypePong:
		again(t, b, ParsePing, func(m Ping) []byte { return m.Append(nil) })
	}
}

func again[M any](t *testing.T, b []byte, parse func([]byte) (M, error), write func(M) []byte) {
	t.Helper()
	first, err := parse(b)
	if err != nil {
		return
	}
	second, err := parse(write(first))
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Fatalf("%+v became %+v, %v", first, second, err)
	}
}
