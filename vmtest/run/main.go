// SPDX-License-Identifier: Apache-2.0

// Command vmtest runs the integration tests in virtual machines, one kernel each, and prints what works where. The same
// program is the first process of those machines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/vmtest/internal/guest"
)

// errRed is when the matrix has a failing cell; it has been told by then.
var errRed = errors.New("the matrix has failing cells")

func main() {
	if os.Getpid() == 1 {
		guest.Init()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, errRed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "vmtest:", err)
		os.Exit(2)
	}
}

func command() *cobra.Command {
	root := testCommand()
	root.AddCommand(benchCommand(), guestCommand(), featuresCommand())
	root.SilenceErrors, root.SilenceUsage = true, true
	return root
}

// guestCommand is what a virtual machine runs once it sees the shared directory.
func guestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "guest DIR", Short: "run the plan in a shared directory; only in a guest", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return guest.Run(args[0]) },
	}
}

func featuresCommand() *cobra.Command {
	return &cobra.Command{
		Use: "features TRUNKLINE", Short: "what this kernel can do, as JSON; only in a guest", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			features, err := guest.Features(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(features)
		},
	}
}
