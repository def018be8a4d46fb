// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// codecChoice is what is written of a codec at a peer or a rule. A nil node is a key that is not there.
type codecChoice struct {
	spec                 codec.Spec
	kind, stage, segment ast.Node
}

// codecFields adds what reads the keys of a codec.
func (d *decoder) codecFields(c *codecChoice, f fields) fields {
	f["codec"] = func(n ast.Node) {
		d.text(n, "codec", func(s string) {
			k, err := codec.ParseKind(s)
			if err != nil {
				d.failf(n, "codec %q is unknown; %s", s, suggest(s, codec.Kinds()))
				return
			}
			c.spec.Kind, c.kind = k, n
		})
	}
	f["stage"] = func(n ast.Node) {
		d.text(n, "stage", func(s string) {
			v, err := codec.ParseStage(s)
			if err != nil {
				d.failf(n, "stage %q is unknown; %s", s, suggest(s, codec.Stages()))
				return
			}
			c.spec.Stage, c.stage = v, n
		})
	}
	f["segment"] = func(n ast.Node) {
		d.number(n, "segment", codec.MinSegment, codec.MaxSegment, func(v uint64) {
			if v&(v-1) != 0 {
				d.failf(n, "segment %d must be a power of two, like 512 or 1024", v)
			}
			c.spec.SegmentBytes, c.segment = uint16(v), n
		})
	}
	return f
}

// checkCodec finds what a peer or a rule says that does not go together; c has what it inherits already.
func (d *decoder) checkCodec(c *codecChoice, where string) {
	s := c.spec
	if c.segment != nil && s.Kind == codec.Native {
		d.failf(c.segment, "segment is for the codecs wanproxy and wanproxy2, and that of %s is native; remove it, or set codec: wanproxy", where)
	}
	if err := dedup.Offers(s); err != nil {
		at := c.kind
		if at == nil {
			at = c.stage
		}
		d.failf(at, "%v", fmt.Errorf("the codec of %s: %w", where, err))
	}
}

// over gives what is in force: what the rule does not say its peer does.
func (c codecChoice) over(peer codecChoice) codecChoice {
	if c.kind == nil {
		c.spec.Kind = peer.spec.Kind
	}
	if c.stage == nil {
		c.spec.Stage = peer.spec.Stage
	}
	switch {
	case c.segment == nil && c.spec.Kind != codec.Native:
		c.spec.SegmentBytes = peer.spec.SegmentBytes
	case c.segment == nil:
		c.spec.SegmentBytes = 0
	}
	return c
}

// settleCodecs gives every rule the codec that is in force for it.
func (d *decoder) settleCodecs(c *Config) {
	byName := map[string]codecChoice{}
	for i := range c.Peers {
		choice := d.peerCodecs[i]
		d.checkCodec(&choice, fmt.Sprintf("peer %q", c.Peers[i].Name))
		c.Peers[i].Codec, byName[c.Peers[i].Name] = choice.spec, choice
	}
	for i := range c.Rules {
		own := d.rules[i].codec
		choice := own.over(byName[c.Rules[i].Peer])
		if own.kind != nil || own.stage != nil || own.segment != nil { // else the peer's place has been named
			d.checkCodec(&choice, fmt.Sprintf("rule %q", c.Rules[i].Name))
		}
		c.Rules[i].Codec = choice.spec
	}
}
