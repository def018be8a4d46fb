// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/machine"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// benchOptions are the command line of a bench.
type benchOptions struct {
	kernel, out string
	limit       time.Duration
}

func benchCommand() *cobra.Command {
	o := &benchOptions{}
	cmd := &cobra.Command{
		Use:   "bench --out DIR -- NAME [ARGUMENT...]",
		Short: "run a bench of trunkline's in a virtual machine, under exact time",
		Long: "Runs `trunkline bench NAME` in a guest whose clock counts instructions, so that rates, delays and losses are what they are\n" +
			"set to whatever else this machine is doing. What the bench writes with --out lands in DIR.",
		Example: "  vmtest bench --kernel 6.12 --out /tmp/overhead -- overhead --quick",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runBench(cmd.Context(), o, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.kernel, "kernel", "6.12", "kernel, or path of an image")
	cmd.Flags().StringVar(&o.out, "out", "", "directory for bench.json, the table and the plots; made if it is not there")
	cmd.Flags().DurationVar(&o.limit, "limit", 6*time.Hour, "by this machine's clock")
	return cmd
}

// benchStep is the name of the step, and of its log.
const benchStep = "bench"

func runBench(ctx context.Context, o *benchOptions, args []string, stdout, stderr io.Writer) error {
	if o.out == "" {
		return errors.New("--out is missing; name the directory for what the bench finds")
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	share := filepath.Join(out, "guest")
	defer os.RemoveAll(filepath.Join(share, "bin"))
	b, err := buildAll(ctx, filepath.Join(share, "bin"), nil, stderr)
	if err != nil {
		return err
	}
	k, err := kernel.Get(ctx, o.kernel, "", stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "kernel %s (%s), exact time: trunkline bench %v\n", k.Name, k.Release, args)
	stop := followBench(ctx, plan.LogPath(share, benchStep), stderr)
	report, err := boot(ctx, k, stage{name: "bench", exact: true}, []plan.Step{o.step(b, args)}, b, share, false, stderr)
	stop()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, machine.Tail(filepath.Join(share, "console.log"), kernelLogLines))
	}
	return collect(share, out, stepResult(report, benchStep), stdout)
}

func (o *benchOptions) step(b *build, args []string) plan.Step {
	command := append([]string{b.trunkline, "bench"}, args...)
	return plan.Step{Name: benchStep, Dir: "/tmp", Args: append(command, "--out", "/run/vmtest/results"),
		Env: []string{testkit.ExactVar + "=1"}, TimeoutS: int(o.limit / time.Second)}
}

// collect moves what the bench wrote to where it was asked for, and prints its table.
func collect(share, out string, r plan.Result, stdout io.Writer) error {
	if r.ExitCode != 0 {
		return fmt.Errorf("the bench failed in the guest (%d %s):\n%s", r.ExitCode, r.Err, machine.Tail(plan.LogPath(share, benchStep), kernelLogLines))
	}
	results := filepath.Join(share, "results")
	entries, err := os.ReadDir(results)
	if err != nil {
		return fmt.Errorf("the bench wrote nothing: %w", err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(results, e.Name()), filepath.Join(out, e.Name())); err != nil {
			return fmt.Errorf("collecting what the bench wrote: %w", err)
		}
	}
	table, err := os.ReadFile(filepath.Join(out, "table.txt"))
	if err != nil {
		return fmt.Errorf("the bench wrote no table: %w", err)
	}
	_, err = stdout.Write(table)
	return errors.Join(err, os.RemoveAll(results))
}
