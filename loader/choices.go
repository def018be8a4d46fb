// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/trunkline/trunkline/bpf"
)

// Choice is the congestion control of a path: flows of rules with Auto have it from their SYN, and live ones follow a change
// within a round trip.
type Choice struct {
	Prefix     netip.Prefix // as Flow.Path and Path.Prefix say it: /24 and /48, or a rule's own if longer
	PeerID     uint32       // 0: no peer
	Congestion string
	Renewals   uint32 // one more than before has live flows begin anew with the algorithm, in slow start
}

// choiceState is what of the choices is in the kernel.
type choiceState struct {
	mu      sync.Mutex // guards what follows; one change of tl_choice at a time
	inForce map[bpf.PathKey]bpf.Choice
	renewed map[bpf.PathKey]uint32 // Choice.Renewals of those
	version uint32                 // the latest given
}

// MaxChoices is how many paths can have a choice.
func (l *Loader) MaxChoices() int { return int(l.maps["tl_choice"].MaxEntries()) }

// SetChoices has the paths choose these congestion controls, and no others: what a path had that is not among them ends for
// new flows, while live ones keep what they have. Only differences are written, and only where the name is another one, or
// there are more renewals, do live flows take it. Choices stay over Apply.
//
// A name that the kernel does not offer leaves its flows what they have, and shows as Flow.CongestionErrno. It is an error
// to name a path twice, or more paths than the kernel's table holds; then nothing changes.
func (l *Loader) SetChoices(choices []Choice) error {
	l.choices.mu.Lock()
	defer l.choices.mu.Unlock()
	m, s := l.maps["tl_choice"], &l.choices
	if s.inForce == nil {
		s.inForce = map[bpf.PathKey]bpf.Choice{}
	}
	if len(choices) > int(m.MaxEntries()) {
		return fmt.Errorf("%d paths have a choice, the kernel's table holds %d; forget the oldest", len(choices), m.MaxEntries())
	}
	next := make(map[bpf.PathKey]bpf.Choice, len(choices))
	renewed := make(map[bpf.PathKey]uint32, len(choices))
	version, now := s.version, monotonic()
	for _, c := range choices {
		if !c.Prefix.IsValid() || c.Congestion == "" || len(c.Congestion) >= bpf.CCNameMax {
			return fmt.Errorf("choice of %q for path %s: needs a prefix, and a name of 1 to %d characters", c.Congestion, c.Prefix, bpf.CCNameMax-1)
		}
		k := bpf.PathKeyFrom(c.Prefix, c.PeerID)
		if _, twice := next[k]; twice {
			return fmt.Errorf("path %s of peer %d has two choices; give it one", c.Prefix, c.PeerID)
		}
		v, ok := s.inForce[k]
		anew := c.Renewals > s.renewed[k]
		if name := bpf.CCNameFrom(c.Congestion); !ok || v.Congestion != name || anew {
			// A program may still read an entry when its memory is another path's already: no version comes twice, so
			// that its flow finds its own choice with the next round trip.
			version++
			v = bpf.Choice{Congestion: name, Version: version, SinceNs: now}
			if anew {
				v.Anew = 1
			}
		}
		next[k], renewed[k] = v, c.Renewals
	}
	s.version = version
	// Stale ones first, so that the table never needs room for both.
	err := errors.Join(
		deleteStale(m, s.inForce, next, keys(s.inForce)),
		putAll(m, s.inForce, next, keys(next)),
	)
	if err != nil {
		return fmt.Errorf("writing choices: %w", err)
	}
	s.renewed = renewed
	return nil
}
