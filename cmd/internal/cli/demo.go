// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/demo"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func demoCommand(env Env) *cobra.Command {
	o := demo.Options{Stdout: env.Stdout, Stderr: env.Stderr}
	var rate, loss string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Both ends on this machine, and an emulated WAN between them",
		Long: "demo makes two sites in network namespaces with an emulated WAN between them, an agent at each, a web server at one and\n" +
			"a client at the other. The client fetches a real file directly, then through trunkline for the first time and again,\n" +
			"and a table says what each fetch cost. Everything is removed at the end, also on Ctrl-C. It needs root.\n\n" +
			"Packets are lost as --loss says and, like on any link, where the WAN's queue is full: both show as retransmits.",
		Example: "  sudo trunkline demo\n  sudo trunkline demo --rate 100Mbit --rtt 135ms --loss 2% --json",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			var rateErr, lossErr, rttErr error
			o.Rate, rateErr = units.Rate(rate)
			o.Loss, lossErr = units.Percent(loss)
			if o.RTT < 0 || o.RTT > time.Minute {
				rttErr = errors.New("--rtt must be from 0 to 1m")
			}
			return errors.Join(rateErr, lossErr, rttErr)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return demo.Run(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&rate, "rate", "10Mbit", "rate of the WAN, each way; 0bit: no limit")
	f.DurationVar(&o.RTT, "rtt", 50*time.Millisecond, "round-trip time of the WAN")
	f.StringVar(&loss, "loss", "0.1%", "share of the packets that the WAN loses, each way")
	f.Uint64Var(&o.Seed, "seed", 1, "which packets those are")
	f.StringVar(&o.File, "file", "", "what to fetch, best 16 MB or more (default: this executable or another real file)")
	f.BoolVar(&o.Hold, "hold", false, "keep both sites for a look around until Ctrl-C")
	f.BoolVar(&o.KeepLogs, "keep-logs", false, "leave the agents' logs behind and say where")
	jsonFlag(c, &o.JSON)
	return c
}

// demoChildren are the commands by which the demo runs its own server and client.
func demoChildren() []*cobra.Command {
	var root string
	serve := &cobra.Command{
		Use: demo.ServeCommand + " ADDRESS:PORT...", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			return demo.ServeMain(ctx, root, args)
		},
	}
	serve.Flags().StringVar(&root, "root", ".", "directory to serve")
	fetch := &cobra.Command{
		Use: demo.FetchCommand + " URL FILE", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return demo.FetchMain(cmd.Context(), args[0], args[1]) },
	}
	return []*cobra.Command{serve, fetch}
}
