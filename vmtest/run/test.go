// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/machine"
	"github.com/trunkline/trunkline/vmtest/internal/matrix"
)

// options are the command line of a run.
type options struct {
	kernels, stages, suites []string
	run                     string
	out                     string
	scale, jobs             int
	refresh, doc, json      bool
}

func testCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "vmtest",
		Short: "run the integration tests on several kernels, in virtual machines",
		Long: "Boots real kernels in virtual machines, runs the integration tests inside, and prints what works where.\n" +
			"Kernels are Debian's, fetched once into a cache; a path is an image of your own.\n" +
			"Exit codes: 0 all is as expected, 1 the matrix has failing cells, 2 it could not be run.",
		Example: "  vmtest --kernel 6.12                    one kernel\n" +
			"  vmtest --kernel ./bzImage               an image of your own\n" +
			"  vmtest --kernel 6.1 --stage functional --suite loader --run Marks",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runTests(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.kernels, "kernel", nil, "kernels, or paths of images (default "+strings.Join(kernel.Default(), ",")+")")
	f.StringSliceVar(&o.stages, "stage", nil, "how the machine is: "+strings.Join(stageNames(), ", ")+" (default all)")
	f.StringSliceVar(&o.suites, "suite", nil, "packages whose tests are run: "+strings.Join(suites, ", ")+" (default all)")
	f.StringVar(&o.run, "run", "", "only tests that match, as go test's -run")
	f.StringVar(&o.out, "out", "", "keep logs and results in this directory (default: a new one below the temporary directory)")
	f.IntVar(&o.scale, "scale", emulatedScale, "by how much tests shrink where every instruction is emulated")
	f.IntVar(&o.jobs, "jobs", max(1, runtime.NumCPU()), "how many kernels at a time")
	f.BoolVar(&o.refresh, "refresh", false, "look for newer versions of the kernels first")
	f.BoolVar(&o.doc, "doc", false, "write docs/kernels.md from what was found")
	f.BoolVar(&o.json, "json", false, "print the matrix as JSON")
	return cmd
}

// partial tells whether stages are not run as they are: then what was found says nothing of them. Which stages were run, the
// document says itself.
func (o *options) partial() bool { return len(o.suites) > 0 || o.run != "" }

func runTests(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	picked, err := o.check()
	if err != nil {
		return err
	}
	which := suites
	if len(o.suites) > 0 {
		which = o.suites
	}
	b, err := buildAll(ctx, filepath.Join(o.out, "bin"), which, stderr)
	if err != nil {
		return err
	}
	expect, err := matrix.LoadExpect(filepath.Join(b.top, "vmtest", "expect.yaml"))
	if err != nil {
		return err
	}
	results := onKernels(ctx, picked, b, o, &lockedWriter{w: stderr})
	if ctx.Err() != nil {
		return fmt.Errorf("stopped; what was found so far is in %s", o.out)
	}
	return o.report(matrix.Judge(expect, results), b, stdout, stderr)
}

// onKernels runs some kernels at a time. Guests wait more than they compute, and functional stages are bounded generously.
func onKernels(ctx context.Context, picked []stage, b *build, o *options, w io.Writer) []matrix.Result {
	results := make([]matrix.Result, len(o.kernels))
	var wg sync.WaitGroup
	free := make(chan struct{}, o.jobs)
	for i, name := range o.kernels {
		free <- struct{}{}
		wg.Go(func() {
			results[i] = onKernel(ctx, name, picked, b, o, w)
			<-free
		})
	}
	wg.Wait()
	return results
}

// lockedWriter keeps the lines of several kernels whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (o *options) check() ([]stage, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: guests see this machine's files as they are, with their owners")
	}
	if o.scale < 1 || o.jobs < 1 {
		return nil, errors.New("--scale and --jobs are at least 1")
	}
	if o.doc && o.partial() {
		return nil, errors.New("--doc with --suite or --run: a part of a stage says nothing of the whole; leave one of them out")
	}
	for _, s := range o.suites {
		if !slices.Contains(suites, s) {
			return nil, fmt.Errorf("--suite %s: there is none of this name; use one of %s", s, strings.Join(suites, ", "))
		}
	}
	if len(o.kernels) == 0 {
		o.kernels = kernel.Default()
	}
	if o.out == "" {
		dir, err := os.MkdirTemp("", "trunkline-vmtest-")
		if err != nil {
			return nil, fmt.Errorf("keeping logs: %w", err)
		}
		o.out = dir
	}
	var err error
	if o.out, err = filepath.Abs(o.out); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return pickStages(o.stages)
}

// onKernel runs every stage on one kernel.
func onKernel(ctx context.Context, name string, picked []stage, b *build, o *options, w io.Writer) matrix.Result {
	get := kernel.Get
	if o.refresh {
		get = kernel.Refresh
	}
	k, err := get(ctx, name, "", w)
	if err != nil {
		return matrix.Result{Kernel: filepath.Base(name), Err: err.Error()}
	}
	r := matrix.Result{Kernel: k.Name, Release: k.Release}
	kvm := machine.HaveKVM(ctx, k, b.guest)
	for _, s := range picked {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(w, "kernel %s (%s), %s: %s\n", k.Name, k.Release, s.name, s.about)
		start := time.Now()
		found := onStage(ctx, k, s, b, o, kvm, w)
		found.stage.Seconds = time.Since(start).Seconds()
		r.Stages = append(r.Stages, found.stage)
		r.Features = mergeFeatures(r.Features, found.features, s)
		if found.release != "" {
			r.Release = found.release
		}
		fmt.Fprintf(w, "kernel %s, %s: %.0f s\n", k.Name, s.name, found.stage.Seconds)
	}
	return r
}

func (o *options) report(m *matrix.Matrix, b *build, stdout, stderr io.Writer) error {
	if o.doc {
		if err := m.WriteDoc(filepath.Join(b.top, "docs", "kernels.md")); err != nil {
			return err
		}
	}
	if o.json {
		if err := m.JSON(stdout); err != nil {
			return err
		}
	} else {
		m.Print(stdout, isTerminal(stdout))
	}
	fmt.Fprintf(stderr, "logs: %s\n", o.out)
	if !m.OK() {
		return errRed
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
