// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a codec's number in the protocol; numbers are never reused.
type Kind uint8

// The codecs.
const (
	Native    Kind = 0 // ranges of the shared history, found by sampled fingerprints
	WANProxy  Kind = 1 // segments of fixed size, as WANProxy does
	WANProxy2 Kind = 2 // the same with references to parts of segments
)

// Stage is what compresses bytes that are not referred to, or, with the WANProxy codecs, all that the codec gives out. It is
// a number in the protocol.
type Stage uint8

// The second stages.
const (
	Zstd      Stage = 0
	Zlib      Stage = 1
	StageNone Stage = 2
)

var (
	kinds  = []string{Native: "native", WANProxy: "wanproxy", WANProxy2: "wanproxy2"}
	stages = []string{Zstd: "zstd", Zlib: "zlib", StageNone: "none"}
)

// Segment sizes of the WANProxy codecs in bytes.
const (
	DefaultSegment = 2048
	MinSegment     = 128
	MaxSegment     = 2048
)

// A Spec chooses a codec. The zero Spec is the native codec with zstd.
type Spec struct {
	Kind         Kind
	Stage        Stage
	SegmentBytes uint16 // of the WANProxy codecs: a power of two, MinSegment to MaxSegment; 0: DefaultSegment
}

// ParseKind reads a codec's name.
func ParseKind(s string) (Kind, error) {
	if i := slices.Index(kinds, s); i >= 0 {
		return Kind(i), nil
	}
	return 0, fmt.Errorf("codec %q is not known; use %s", s, strings.Join(kinds, ", "))
}

// ParseStage reads a second stage's name.
func ParseStage(s string) (Stage, error) {
	if i := slices.Index(stages, s); i >= 0 {
		return Stage(i), nil
	}
	return 0, fmt.Errorf("second stage %q is not known; use %s", s, strings.Join(stages, ", "))
}

// Kinds and Stages are the names, in the order of their numbers.
func Kinds() []string  { return slices.Clone(kinds) }
func Stages() []string { return slices.Clone(stages) }

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("codec %d", uint8(k))
}

func (s Stage) String() string {
	if int(s) < len(stages) {
		return stages[s]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// String returns the codec and its second stage, as "native+zstd".
func (s Spec) String() string {
	if s.Stage == StageNone {
		return s.Kind.String()
	}
	return s.Kind.String() + "+" + s.Stage.String()
}

// Check tells whether this version knows all that a spec says: a spec may come from the peer.
func (s Spec) Check() error {
	n := s.SegmentBytes
	switch {
	case int(s.Kind) >= len(kinds):
		return fmt.Errorf("%v is not known here", s.Kind)
	case int(s.Stage) >= len(stages):
		return fmt.Errorf("%v is not known here", s.Stage)
	case n != 0 && (n < MinSegment || n > MaxSegment || n&(n-1) != 0):
		return fmt.Errorf("segments of %d bytes: the size must be a power of two from %d to %d", n, MinSegment, MaxSegment)
	}
	return nil
}

// Segment returns the segment size in bytes.
func (s Spec) Segment() int {
	if s.SegmentBytes == 0 {
		return DefaultSegment
	}
	return int(s.SegmentBytes)
}
