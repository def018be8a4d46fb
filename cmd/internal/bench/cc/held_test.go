// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/internal/testkit"
)

// What would outlive a killed bench is written where the next one's cleanup finds it.
func TestLedgerIsFoundByCleanup(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	h := &held{}
	if err := h.openLedger(dir); err != nil {
		t.Fatal(err)
	}
	located, err := config.Locate(filepath.Join(dir, "algorithms", labagent.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(located.StateDir, "ledger.db")); err != nil {
		t.Error(err)
	}
	forget, err := notes{h.ledger}.Record("tl_none", filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := forget(); err != nil {
		t.Error(err)
	}
	if err := h.release(); err != nil {
		t.Error(err)
	}
}

// An algorithm that cannot be had leaves the plan, and a plan without any is an error; a module that is not there, too.
func TestNothingToHold(t *testing.T) {
	testkit.NeedRoot(t)
	p := &plan{subjects: []subject{{algorithm: "none", source: "module", name: "none", load: true}, {algorithm: "reno", source: "builtin", name: "reno"}}}
	h, err := holdAlgorithms(t.TempDir(), p)
	if err != nil || len(p.subjects) != 1 || len(p.notes) != 1 || !strings.HasPrefix(p.notes[0], "none is not run: loading its module: modprobe tcp_none: ") {
		t.Errorf("%v: %+v", err, p)
	}
	if err := h.release(); err != nil {
		t.Error(err)
	}
	p.subjects = p.subjects[:0]
	p.subjects = append(p.subjects, subject{algorithm: "none", source: "module", name: "none", load: true})
	if _, err := holdAlgorithms(t.TempDir(), p); err == nil || !strings.HasPrefix(err.Error(), "no algorithm is left to run: ") {
		t.Errorf("got %v", err)
	}
}
