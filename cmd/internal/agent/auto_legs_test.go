// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// What crosses the WAN of a steered connection is a leg: it has the choice of the path to the peer, and follows it.
func TestAutoLegs(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	far, err := labagent.New(w.lab.B, w.agent.Binary, "autofar", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const port = 4820
	err = far.Configure(fmt.Sprintf("listen: \"%s:%d\"", w.lab.B.Addr4, port),
		fmt.Sprintf("peers: [{name: near, key: %q, allow: [\"%s/32:1-65535\"]}]", w.agent.Key, w.lab.B.Addr4))
	if err != nil {
		t.Fatal(err)
	}
	configure := func(candidate string) {
		t.Helper()
		err := w.agent.Configure(fmt.Sprintf("peers: [{name: far, address: \"%s:%d\", key: %q}]", w.lab.B.Addr4, port, far.Key),
			fmt.Sprintf("rules: [{name: wan, remote: %q, congestion: auto, dedup: {peer: far}}]", w.lab.B.Net4),
			fmt.Sprintf("auto: {candidates: [%s]}", candidate))
		if err != nil {
			t.Fatal(err)
		}
	}
	configure(w.other)
	if err := far.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Stop() })
	w.start()
	if _, err := w.agent.WaitReady(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	leg := func(what string, ok func(control.Flow) bool) control.Flow {
		t.Helper()
		var flows []control.Flow
		for end := time.Now().Add(testkit.Wait(w.patience)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if flows, err = w.agent.Control().Flows(t.Context()); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(flows, func(f control.Flow) bool { return f.Kind == "leg" && f.Auto && ok(f) })
			if i >= 0 {
				return flows[i]
			}
		}
		t.Fatalf("%s: the flows are %+v%s", what, flows, labagent.Tail(w.agent.Log()))
		return control.Flow{}
	}
	end := w.send()
	f := leg("a leg with the prior", func(f control.Flow) bool { return f.Congestion == w.other && f.Choice != nil })
	if f.Choice.Peer != "far" || f.Choice.Chosen != w.other {
		t.Errorf("the leg's choice is %+v", f.Choice)
	}
	if e := w.explain(); len(e.Choices) != 1 || e.Choices[0].Peer != "far" {
		t.Errorf("explain: %+v", e)
	}
	configure(w.kernel)
	w.reload()
	leg("after a change", func(f control.Flow) bool { return f.Congestion == w.kernel })
	if text := w.log(); !strings.Contains(text, fmt.Sprintf("peer=far old=%s new=%s", w.other, w.kernel)) {
		t.Errorf("the log does not tell of the change%s", labagent.Tail(w.agent.Log()))
	}
	end()
	w.stop()
	if err := far.Stop(); err != nil {
		t.Error(err)
	}
}
