// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
)

// What the disk does not let be kept is said once, and again when it does; it is never an error.
func TestMemoryWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	now := time.Now()
	kept := []choice.Record{{Path: choice.Path{Prefix: netip.MustParsePrefix("203.0.113.0/24")}, Updated: now, Chosen: "bbr", Class: choice.Random}}
	var m memory
	if got := m.open(filepath.Join(dir, "paths.db"), now, log); len(got) > 0 || m.problem() == "" {
		t.Errorf("opened: %v, problem %q", got, m.problem())
	}
	for range 3 {
		m.save(now, kept, log)
	}
	if n := strings.Count(text.String(), "\n"); n != 1 || !strings.Contains(text.String(), dir) {
		t.Errorf("%d lines: %s", n, &text)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	m.save(now, kept, log)
	if err := m.close(); err != nil || m.problem() != "" || !strings.Contains(text.String(), "is saved again") {
		t.Errorf("with a disk: %v, problem %q, log %s", err, m.problem(), &text)
	}
	var next memory
	if got := next.open(filepath.Join(dir, "paths.db"), now, log); len(got) != 1 || got[0].Chosen != "bbr" {
		t.Errorf("kept: %+v", got)
	}
	if err := next.close(); err != nil {
		t.Error(err)
	}
}

// A module that comes while the agent runs is a candidate from then on.
func TestFollowCandidates(t *testing.T) {
	h := newHost(t)
	c := h.write("rules: [{name: all, remote: 203.0.113.0/24, congestion: auto}]\nauto: {candidates: [reno, nosuchcc]}\n")
	a := &agent{o: Options{Version: "test"}, log: slog.New(slog.DiscardHandler), config: c}
	if err := a.start(context.Background()); err != nil {
		t.Fatal(err, a.close())
	}
	defer a.close()
	prior := func() string { return a.table.Rules()[0].Congestion }
	if prior() != "reno" {
		t.Errorf("at first the prior is %q", prior())
	}
	// As if reno had not been there when the agent looked.
	none := []hostcheck.Candidate{{Name: "reno", Why: "not there"}, {Name: "nosuchcc", Why: "not there"}}
	table, err := a.build(c, none)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.switchTo(c, table, none, nil); err != nil || prior() != "" || a.auto.chooser.Prior() != "" {
		t.Fatalf("without candidates: %q, %q, %v", prior(), a.auto.chooser.Prior(), err)
	}
	a.followCandidates()
	if prior() != "reno" || a.auto.chooser.Prior() != "reno" {
		t.Errorf("afterwards the prior is %q, the chooser's %q", prior(), a.auto.chooser.Prior())
	}
}
