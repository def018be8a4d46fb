// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/cc"
	"github.com/trunkline/trunkline/cmd/internal/bench/dedup"
	"github.com/trunkline/trunkline/cmd/internal/bench/overhead"
	"github.com/trunkline/trunkline/cmd/internal/bench/relay"
	"github.com/trunkline/trunkline/cmd/internal/bench/window"
)

// benches is the catalogue of experiments, in the order of the help.
var benches = []func() *bench.Bench{
	overhead.New,
	relay.New,
	cc.New,
	window.New,
	dedup.New,
}

func benchCommand(env Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "The experiments: measure here, with tables and plots",
		Long: "bench runs experiments where they stand, in network namespaces and cgroups of their own, and prints a table. Each\n" +
			"compares with a named peer in the same run, interleaved, and gives medians and quartiles. Progress goes to standard\n" +
			"error. With --json one object is printed, {\"machine\": {...}, \"rows\": [{...}]}, whose rows are flat and whose fields\n" +
			"carry their units.",
		Example: "  sudo trunkline bench overhead --quick",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a bench")
			}
			return fmt.Errorf("no bench is called %q", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	for _, b := range benches {
		c.AddCommand(oneBench(env, b()))
	}
	return c
}

func oneBench(env Env, b *bench.Bench) *cobra.Command {
	o := bench.Options{Version: Version, Stdout: env.Stdout, Stderr: env.Stderr}
	c := &cobra.Command{
		Use: b.Name, Short: b.Short, Long: b.Long, Example: b.Example, Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if b.Check == nil {
				return nil
			}
			return b.Check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Run(cmd.Context(), b, o) },
	}
	f := c.Flags()
	f.BoolVar(&o.Quick, "quick", false, "take less than a minute, with more spread")
	f.StringVar(&o.Out, "out", "", "directory for the table (table.txt), the JSON (bench.json) and the plots; made if it is not there")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything drawn by chance, the order of runs among it")
	jsonFlag(c, &o.JSON)
	if b.Flags != nil {
		b.Flags(f)
	}
	return c
}

// benchChildren are the commands by which benches run their own servers and clients.
func benchChildren() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: overhead.ServeCommand + " ADDRESS", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return overhead.ServeMain(args, cmd.OutOrStdout()) },
		},
		{
			Use: cc.ReceiveCommand + " ADDRESS PORT...", Hidden: true, Args: cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error { return cc.ReceiveMain(args, cmd.OutOrStdout()) },
		},
		{
			Use: cc.SendCommand + " ORDER", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return cc.SendMain(args, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
		{
			Use: window.ReceiveCommand + " ORDER", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return window.ReceiveMain(args, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
		{
			Use: window.SendCommand + " ORDER", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return window.SendMain(args, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
		{
			Use: relay.ServeCommand + " ADDRESS", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return relay.ServeMain(args, cmd.OutOrStdout()) },
		},
		{
			Use: relay.PassCommand + " LISTEN TARGET plain|tls near|far PACING", Hidden: true, Args: cobra.ExactArgs(5),
			RunE: func(cmd *cobra.Command, args []string) error { return relay.PassMain(args, cmd.OutOrStdout()) },
		},
		{
			Use: relay.FetchCommand + " ADDRESS", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return relay.FetchMain(args, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
		{
			Use: overhead.LoadCommand + " connect|bulk ADDRESS FOR PARALLEL SEED", Hidden: true, Args: cobra.ExactArgs(5),
			RunE: func(cmd *cobra.Command, args []string) error {
				return overhead.LoadMain(args, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
	}
}
