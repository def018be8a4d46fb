// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// offered are the codecs that Memory makes.
var offered = []codec.Kind{codec.Native, codec.WANProxy, codec.WANProxy2}

// Offers says why Memory cannot make the coders of a spec; nil: it can. A spec may come from the peer.
func Offers(s codec.Spec) error {
	if err := s.Check(); err != nil {
		return err
	}
	if slices.Contains(offered, s.Kind) {
		return nil
	}
	names := make([]string, len(offered))
	for i, k := range offered {
		names[i] = k.String()
	}
	return fmt.Errorf("this version does not have %v yet; use %s", s.Kind, strings.Join(names, " or "))
}

// Features are the bits of HELLO by which an agent tells the codecs that it has: one for each kind, by its number.
func Features() (bits uint64) {
	for _, k := range offered {
		bits |= 1 << k
	}
	return bits
}

// Agree gives the spec to use with a peer of these features: the one that is wanted, else the default, which every agent has.
func Agree(want codec.Spec, features uint64) (use codec.Spec, agreed bool) {
	if want.Kind == codec.Native || features&(1<<want.Kind) != 0 {
		return want, true
	}
	return codec.Spec{Stage: want.Stage}, false
}

// Names are those of the codecs that features tell of.
func Names(features uint64) (names []string) {
	for k, name := range codec.Kinds() {
		if features&(1<<k) != 0 {
			names = append(names, name)
		}
	}
	return names
}
