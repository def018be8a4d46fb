// SPDX-License-Identifier: Apache-2.0

package labagent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// A run that was killed leaves a directory, which the next one removes after having its agents' changes undone; what is
// not a dead run's stays.
func TestRemoveStale(t *testing.T) {
	testkit.NeedRoot(t)
	t.Setenv("TMPDIR", t.TempDir())
	dead := exec.Command(testkit.NeedProgram(t, "true"))
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	at := func(program string, pid int) string {
		return filepath.Join(os.TempDir(), fmt.Sprintf("trunkline-%s-%d-1", program, pid))
	}
	stale, live, other := at("demo", dead.Process.Pid), at("demo", os.Getpid()), at("bench", dead.Process.Pid)
	foreign := at("demo", dead.Process.Pid) + "1"
	for path, mode := range map[string]os.FileMode{stale: 0o700, live: 0o700, other: 0o700, foreign: 0o755} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(stale, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(stale, "a", ConfigName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The stand-in for trunkline writes down how it was called.
	calls, binary := filepath.Join(t.TempDir(), "calls"), filepath.Join(t.TempDir(), "trunkline")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho \"$@\" >>"+calls+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if removed := RemoveStale(t.Context(), "demo", binary); len(removed) != 1 || removed[0] != stale {
		t.Errorf("removed %v, want %s", removed, stale)
	}
	for path, want := range map[string]bool{stale: false, live: true, other: true, foreign: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, _ := os.ReadFile(calls); string(got) != "cleanup --config "+path+"\n" {
		t.Errorf("the calls were %q", got)
	}
}

// What Configure writes is what an agent reads; one that ends at once is told with the end of its log.
func TestAgentThatEnds(t *testing.T) {
	testkit.NeedRoot(t)
	l, err := lab.New(lab.Options{NoIPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	binary := filepath.Join(t.TempDir(), "trunkline")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho cannot live\n[ $1 = cleanup ]\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := New(l.A, binary, "x", filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(); err != nil {
		t.Errorf("stopping what was not started: %v", err)
	}
	if err := a.Configure("rules:", "  - {remote: 10.0.0.0/8}"); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(a.Config())
	if err != nil || c.Instance != "x" || c.Cgroup != l.A.CgroupPath || len(c.Rules) != 1 {
		t.Errorf("%+v: %v", c, err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.WaitReady(t.Context(), true); err == nil || !strings.Contains(err.Error(), "site a: ended at once") ||
		!strings.Contains(err.Error(), "cannot live") {
		t.Errorf("got %v", err)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
}
