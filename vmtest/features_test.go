// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// offHere says by name why features are off on this kernel, for an agent that is asked for all of them.
var offHere struct {
	once sync.Once
	why  map[string]string
}

// needFeatures skips a test of features that are off on this kernel, where the test starts the agents in a way that does
// not let it ask them.
func needFeatures(t *testing.T, names ...string) {
	t.Helper()
	offHere.once.Do(func() {
		w := newWorld(t, setup{rules: forcedSplice})
		offHere.why = map[string]string{}
		for _, f := range w.a.status().Features {
			if !f.On {
				offHere.why[f.Name] = f.Detail
			}
		}
	})
	for _, name := range names {
		if why, off := offHere.why[name]; off {
			testkit.NeedFeature(t, name, errors.New(why))
		}
	}
}

// forcedSplice is rules that use the fast path whatever its self-test says.
func forcedSplice(_, peer *lab.Site) string {
	return "  - {remote: " + peer.Net4.String() + ", priority: retransmit, splice: force, dedup: {peer: peer}}\n"
}

func (g *agent) status() statusView {
	g.t.Helper()
	var s statusView
	g.ask(&s, "status")
	return s
}

// feature returns what the agent's status says of one feature.
func (g *agent) feature(t *testing.T, name string) featureView {
	t.Helper()
	features := g.status().Features
	i := slices.IndexFunc(features, func(f featureView) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no feature %s in %+v", name, features)
	}
	return features[i]
}

// need skips a test of a feature that is off in this agent.
func (g *agent) need(t *testing.T, name string) {
	t.Helper()
	if f := g.feature(t, name); !f.On {
		testkit.NeedFeature(t, name, errors.New(f.Detail))
	}
}
