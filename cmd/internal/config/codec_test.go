// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A rule says how its flows are encoded, else its peer does, else it is the default.
func TestCodecOfRule(t *testing.T) {
	for _, c := range []struct {
		peer, rule string
		want       codec.Spec
	}{
		{"", "", codec.Spec{}},
		{", stage: zlib", "", codec.Spec{Stage: codec.Zlib}},
		{", stage: zlib", ", stage: none", codec.Spec{Stage: codec.StageNone}},
		{"", ", codec: wanproxy, segment: 512", codec.Spec{Kind: codec.WANProxy, SegmentBytes: 512}},
		{", codec: wanproxy2, stage: zlib, segment: 1024", "", codec.Spec{Kind: codec.WANProxy2, Stage: codec.Zlib, SegmentBytes: 1024}},
		{", codec: wanproxy2, segment: 1024", ", stage: none, segment: 256", codec.Spec{Kind: codec.WANProxy2, Stage: codec.StageNone, SegmentBytes: 256}},
		{", codec: wanproxy2, stage: zlib, segment: 1024", ", codec: native", codec.Spec{Stage: codec.Zlib}},
	} {
		in := fmt.Sprintf("rules: [{remote: 10.0.0.0/8, dedup: {peer: a%s}}]\npeers: [{name: a, address: 'h:1', key: '%s'%s}]", c.rule, keyA, c.peer)
		got, err := Parse("t.yaml", []byte(in))
		if dedup.Offers(c.want) != nil || strings.Contains(c.peer, "wanproxy") && dedup.Offers(codec.Spec{Kind: codec.WANProxy2}) != nil {
			if err == nil || !strings.Contains(err.Error(), "this version does not have") {
				t.Errorf("%s: %v, want that there is no such codec yet", in, err)
			}
			continue
		}
		if err != nil || got.Rules[0].Codec != c.want {
			t.Errorf("%s: %v, want %v (%v)", in, got, c.want, err)
		}
	}
}
