// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func reloadCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "reload",
		Short: "Take a new configuration",
		Long: "reload has the agent read its configuration again. Rules and peers change without a gap; live flows keep what they\n" +
			"have. A file with a mistake changes nothing, and the mistakes are printed. A draining agent steers again.",
		Example: "  trunkline check && trunkline reload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask(&t, func(c *control.Client) (control.Reloaded, error) { return c.Reload(cmd.Context()) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, r)
			}
			fmt.Fprintf(env.Stdout, "reloaded: %s, %s\n", count(r.Rules, "rule"), count(r.Peers, "peer"))
			for _, w := range r.Warnings {
				fmt.Fprintln(env.Stdout, "warning: "+w)
			}
			return nil
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

// drained is what drain --json prints.
type drained struct {
	Drained   bool    `json:"drained"`
	FlowsLeft int     `json:"flows_left"`
	Seconds   float64 `json:"seconds"`
}

func drainCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "drain",
		Short: "Steer no more, let flows finish",
		Long: "drain has new connections go direct from now on and waits until those in the engine have finished. The agent keeps\n" +
			"running and keeps tuning; `trunkline reload` has it steer again.",
		Example: "  trunkline drain --timeout 2m && systemctl stop trunkline",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if timeout < 0 {
				return errors.New("--timeout must not be negative")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			start := time.Now()
			left, err := ask(&t, func(c *control.Client) (int, error) { return drain(cmd.Context(), env, c, timeout) })
			if err != nil {
				return err
			}
			if asJSON {
				if err := writeJSON(env.Stdout, drained{left == 0, left, time.Since(start).Seconds()}); err != nil {
					return err
				}
			} else if left == 0 {
				fmt.Fprintln(env.Stdout, "drained: no flow is left in the engine")
			}
			if left > 0 {
				return fmt.Errorf("%s still in the engine after %s; new connections go direct, these go on: see trunkline flows",
					count(left, "flow"), units.FormatDuration(timeout))
			}
			return nil
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for flows")
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

// drain returns how many flows are left at the end of the wait.
func drain(ctx context.Context, env Env, client *control.Client, timeout time.Duration) (int, error) {
	if err := client.Drain(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	shown := start
	for {
		s, err := client.Status(ctx)
		if err != nil {
			return 0, err
		}
		elapsed := time.Since(start)
		if s.ActiveFlows == 0 || elapsed >= timeout {
			return s.ActiveFlows, nil
		}
		if time.Since(shown) >= 2*time.Second {
			shown = time.Now()
			fmt.Fprintf(env.Stderr, "draining: %s left, %s of %s\n", count(s.ActiveFlows, "flow"),
				units.FormatDuration(elapsed.Round(time.Second)), units.FormatDuration(timeout))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(200*time.Millisecond, timeout-elapsed)):
		}
	}
}
