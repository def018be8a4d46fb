// SPDX-License-Identifier: Apache-2.0

// Package plan is what a host asks of a guest, and what the guest answers: two JSON files in the directory that they share.
package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// The files in the shared directory.
const (
	File   = "plan.json"   // the host writes it
	Answer = "answer.json" // the guest writes it last; without it the guest did not come to its end
)

// Plan is what a guest does from boot to power-off.
type Plan struct {
	Modules []string // kernel modules to load in this order, files of the host
	Hybrid  bool     // cgroup v1 controllers beside cgroup2, as older distributions have it
	Links   []Link   // symbolic links to make
	Steps   []Step
}

// Link is a symbolic link in the guest.
type Link struct{ From, To string }

// Step is one program that the guest runs. Its output goes to the shared directory, as NAME.log.
type Step struct {
	Name     string
	Dir      string
	Args     []string
	Env      []string // beside the guest's own
	TimeoutS int      // by the guest's clock
}

// Result is what came of a step.
type Result struct {
	Name     string
	ExitCode int    // -1 where it did not exit by itself
	Err      string // why it did not run to its end
	Seconds  float64
}

// Report is the answer of a guest.
type Report struct {
	Release string // of its kernel
	Notes   []string
	Results []Result
}

// Write puts v into a file of dir, whole or not at all.
func Write(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	tmp := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// Read gets v from a file of dir.
func Read(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// LogPath is where the output of a step lies.
func LogPath(dir, step string) string { return filepath.Join(dir, step+".log") }
