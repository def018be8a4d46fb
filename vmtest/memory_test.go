// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// rssBytes is the resident memory of a process.
func rssBytes(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kB uint64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kB); err == nil {
			return kB << 10
		}
	}
	t.Fatalf("no VmRSS in /proc/%d/status", pid)
	return 0
}

// A gigabyte to a reader that starts late and reads slowly at first: what is on its way must not pile up in an agent.
func TestASlowReaderBoundsMemory(t *testing.T) {
	history, bytes := testkit.Size(64<<20, 24<<20), testkit.Size(1<<30, 64<<20)
	w := newSites(t, setup{lab: lab.Options{Rate: 2e9}})
	for _, g := range []*agent{w.a, w.b} {
		g.writeConfig(g.config + fmt.Sprintf("history: {memory: %dMiB}\n", history>>20))
		g.start()
	}
	w.waitPeers()
	serve(t, w.lab.B, w.lab.B.Addr4)
	c := startClient(t, w.lab.A.Namespace, "fetch", arg("addr", at(w.lab.B.Addr4, portSource)), arg("bytes", bytes), "-pause=3s", "-rate=60000000")
	done := make(chan *outcome)
	go func() { done <- c.wait() }()
	var most uint64
	for {
		select {
		case o := <-done:
			o.wantAll(t, 1)
			t.Logf("at most %d MiB resident", most>>20)
			// The history and its margin on one side, the index on the other, credit of one flow, and the Go heap's slack on all of it.
			if limit := uint64(5 * history); most > limit {
				t.Errorf("an agent had %d MiB resident, want at most %d", most>>20, limit>>20)
			}
			return
		case <-time.After(200 * time.Millisecond):
			most = max(most, rssBytes(t, w.a.proc.Process.Pid), rssBytes(t, w.b.proc.Process.Pid))
		}
	}
}
