// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/machine"
	"github.com/trunkline/trunkline/vmtest/internal/matrix"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// found is what one stage found.
type found struct {
	stage    matrix.Stage
	features []matrix.Feature
	release  string
}

// kernelLogLines are shown of a guest that did not come to its end.
const kernelLogLines = 30

func onStage(ctx context.Context, k *kernel.Kernel, s stage, b *build, o *options, kvm bool, w io.Writer) found {
	dir := filepath.Join(o.out, k.Name, s.name)
	f := found{stage: matrix.Stage{Name: s.name, Log: filepath.Join(dir, "console.log")}}
	steps := s.steps(b, o)
	report, err := boot(ctx, k, s, steps, b, dir, kvm, w)
	if why := notTheGuest(err, f.stage.Log); why != "" {
		fmt.Fprintf(w, "kernel %s, %s: %s; once more\n", k.Name, s.name, why)
		report, err = boot(ctx, k, s, steps, b, dir, kvm, w)
	}
	if err != nil {
		f.stage.Err = fmt.Sprintf("%v\n%s", err, machine.Tail(f.stage.Log, kernelLogLines))
		report = &plan.Report{}
	}
	f.release = report.Release
	for _, note := range report.Notes {
		fmt.Fprintf(w, "kernel %s, %s: %s\n", k.Name, s.name, note)
	}
	for _, step := range steps {
		result := stepResult(report, step.Name)
		if step.Name == featuresStep {
			f.features, err = readFeatures(dir, result)
		} else {
			err = f.readTests(ctx, dir, step, result)
		}
		if err != nil && f.stage.Err == "" {
			f.stage.Err = err.Error()
		}
	}
	return f
}

// notTheGuest says what the emulator did if that, and nothing of the guest's, has ended a boot; "" if not.
func notTheGuest(err error, console string) string {
	switch {
	case errors.Is(err, machine.ErrSilent):
		return machine.ErrSilent.Error()
	case err != nil && machine.EmulatorFault(console):
		return "the emulator ran an instruction that the kernel had rewritten"
	}
	return ""
}

// stepResult is what came of a step; one that the guest did not come to has not ended.
func stepResult(r *plan.Report, name string) plan.Result {
	i := slices.IndexFunc(r.Results, func(s plan.Result) bool { return s.Name == name })
	if i < 0 {
		return plan.Result{Name: name, ExitCode: -1, Err: "the guest did not come to its end"}
	}
	return r.Results[i]
}

// readFeatures takes the last line, for a step's errors are in the same file.
func readFeatures(dir string, r plan.Result) ([]matrix.Feature, error) {
	b, err := os.ReadFile(plan.LogPath(dir, r.Name))
	if err != nil {
		return nil, fmt.Errorf("asking for features: %w", err)
	}
	if r.ExitCode != 0 {
		return nil, fmt.Errorf("asking for features: %s", bytes.TrimSpace(b))
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	var features []matrix.Feature
	if err := json.Unmarshal(lines[len(lines)-1], &features); err != nil {
		return nil, fmt.Errorf("asking for features: %w in %q", err, b)
	}
	return features, nil
}

// readTests turns a test binary's output into verdicts. One that was never begun has no output.
func (f *found) readTests(ctx context.Context, dir string, step plan.Step, r plan.Result) error {
	pkg := module + suiteOf(step.Name)
	log, err := os.Open(plan.LogPath(dir, step.Name))
	if err != nil {
		f.stage.Tests = matrix.Ended(f.stage.Tests, pkg, r.ExitCode, "it was not begun")
		return nil
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdin = log
	events, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("reading the output of %s: %w", step.Name, err)
	}
	tests, err := matrix.ParseTests(bytes.NewReader(events))
	if err != nil {
		return fmt.Errorf("reading the output of %s: %w", step.Name, err)
	}
	f.stage.Tests = append(f.stage.Tests, matrix.Ended(tests, pkg, r.ExitCode, r.Err)...)
	return nil
}

func suiteOf(step string) string {
	i := slices.IndexFunc(suites, func(s string) bool { return stepName(s) == step })
	return suites[i]
}

// mergeFeatures adds what a stage found to what earlier ones did. The first tells of everything, but whether time is exact
// only the stage that is to have it can say.
func mergeFeatures(have, more []matrix.Feature, s stage) []matrix.Feature {
	if len(have) == 0 {
		return more
	}
	if !s.exact {
		return have
	}
	isExact := func(f matrix.Feature) bool { return f.Name == "exact-time" }
	i, j := slices.IndexFunc(have, isExact), slices.IndexFunc(more, isExact)
	if i >= 0 && j >= 0 {
		have[i] = more[j]
	}
	return have
}
