// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/history"
)

// A sim is a peering whose legs, in flight and on their way back, do what a script says, one step at a time.
type sim struct {
	t     testing.TB
	ends  *ends
	bound int64
	legs  []*simLeg
	asks  int
	wire  int
	raw   int
	lax   bool // asks are to be expected
}

type simLeg struct {
	enc    *Encoder
	dec    *Decoder
	flight [][]byte          // payloads on their way
	acks   []uint64          // acknowledgements on their way
	asked  []*codec.AskError // asks on their way
	want   []byte            // what the decoder has yet to give
	gone   bool              // the encoder is closed; what is in flight still arrives
}

func newSim(t testing.TB, bound int64) *sim {
	return &sim{t: t, ends: newEnds(bound), bound: bound}
}

func (s *sim) open() *simLeg {
	l := &simLeg{enc: NewEncoder(s.ends.senders.Group("g"), Options{}), dec: NewDecoder(s.ends.receivers, "g")}
	s.legs = append(s.legs, l)
	return l
}

func (s *sim) encode(l *simLeg, data []byte) {
	if l.gone {
		return
	}
	p := l.enc.Encode(nil, data)
	s.raw, s.wire = s.raw+len(data), s.wire+len(p)
	l.flight = append(l.flight, p)
	l.want = append(l.want, data...)
}

// deliver lets the oldest payload arrive.
func (s *sim) deliver(l *simLeg) bool {
	if len(l.flight) == 0 {
		return false
	}
	p := l.flight[0]
	l.flight = l.flight[1:]
	got, err := l.dec.Decode(p)
	var ask *codec.AskError
	switch {
	case errors.As(err, &ask):
		if s.asks++; !s.lax && !l.gone {
			s.t.Fatalf("ask: %v", err)
		}
		l.asked = append(l.asked, ask)
		return true
	case err != nil:
		s.t.Fatalf("decoding: %v", err)
	case len(got) == 0:
		return true
	}
	if !bytes.HasPrefix(l.want, got) {
		s.t.Fatalf("other bytes came out, %d of them", len(got))
	}
	l.want = l.want[len(got):]
	l.acks = append(l.acks, l.dec.Decoded())
	return true
}

// answer lets the oldest acknowledgement, or else the oldest ask, arrive.
func (s *sim) answer(l *simLeg) bool {
	switch {
	case l.gone:
		return false
	case len(l.acks) > 0:
		l.enc.Ack(l.acks[0])
		l.acks = l.acks[1:]
	case len(l.asked) > 0:
		a := l.asked[0]
		l.asked = l.asked[1:]
		err := l.enc.Resend(a.Ask, func(p []byte) error {
			s.wire += len(p)
			l.flight = append(l.flight, bytes.Clone(p))
			return nil
		})
		if err != nil {
			s.t.Fatalf("resending: %v", err)
		}
	default:
		return false
	}
	return true
}

// abort closes the encoder while payloads are in flight.
func (s *sim) abort(l *simLeg) {
	l.enc.Close()
	l.gone = true
}

// restart lets the receiving process die: its history and all legs are gone.
func (s *sim) restart() {
	for _, l := range s.legs {
		l.enc.Close()
	}
	s.legs = nil
	s.ends.receivers = history.NewReceivers(s.bound)
	s.ends.senders.SetPeerEpoch(s.ends.receivers.Epoch())
}

// drain delivers everything and checks that all has come.
func (s *sim) drain() {
	for _, l := range s.legs {
		for s.deliver(l) || s.answer(l) {
		}
		if len(l.want) > 0 && !l.gone {
			s.t.Fatalf("%d bytes never came", len(l.want))
		}
		if n := l.enc.Unacked(); n != 0 {
			s.t.Fatalf("%d bytes are unacknowledged at the end", n)
		}
		l.enc.Close()
		l.dec.Close()
	}
	s.legs = nil
}
