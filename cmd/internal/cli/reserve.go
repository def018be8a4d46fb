// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
)

func reserveCommand(env Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "reserve",
		Short: "Make, list, change and end reservations of paths",
		Long: "reserve tells the agent which rate a path has been granted for a time. Connections under a rule with `window: reserved`\n" +
			"to an end point of a reservation then have the window rate x round-trip time from their first segment, and start at\n" +
			"their share of the reserved rate. When the time is over, or the path is not as it was measured, they are as under\n" +
			"`window: auto`. Root may reserve, and whom the configuration names under `reservations: owners`; whoever may use the\n" +
			"control socket may look.",
		Example: "  trunkline reserve add --remote 203.0.113.0/24 --rate 1Gbit --for 2h\n  trunkline reserve list\n" +
			"  trunkline reserve show r1\n  trunkline reserve end r1",
		Args: cobra.NoArgs,
	}
	c.AddCommand(reserveAddCommand(env), reserveListCommand(env), reserveShowCommand(env), reserveChangeCommand(env), reserveEndCommand(env),
		reservePlotCommand(env))
	return c
}

// requestFlags are those of a reservation.
func requestFlags(c *cobra.Command, q *reserve.Request) {
	f := c.Flags()
	f.StringSliceVar(&q.Remote, "remote", nil, "the end points: prefixes and addresses, with commas between them")
	f.StringVar(&q.Rate, "rate", "", "the rate of the path, like 1Gbit, headers included")
	f.StringVar(&q.Share, "share", "", "this host's part of it where several hosts use the path, like 25% (default all)")
	f.StringVar(&q.Start, "start", "", "when it begins: 2026-12-01T14:00:00Z, \"2026-12-01 14:00\" (local), +2h, or now (default now)")
	f.StringVar(&q.End, "end", "", "when it ends, likewise; +2h counts from now")
	f.StringVar(&q.For, "for", "", "or how long it lasts: 2h, 90m, 3d")
	f.StringVar(&q.Owner, "owner", "", "whose it is (default: whom the caller acts for)")
	f.StringVar(&q.RTT, "rtt", "", "the path's round-trip time, like 135ms, until it is measured")
	f.StringSliceVar(&q.Probe, "probe", nil, "ADDRESS:PORT in an end point, to measure the round-trip time by where no connection does")
	c.MarkFlagsMutuallyExclusive("end", "for")
}

// settle writes local times with their zone: they are meant in that of whoever types them, not of the agent.
func settle(q *reserve.Request) error {
	for _, t := range []struct {
		flag string
		text *string
	}{{"start", &q.Start}, {"end", &q.End}} {
		if *t.text == "" || *t.text == "now" || (*t.text)[0] == '+' {
			continue
		}
		v, err := reserve.ParseTime(*t.text, time.Now(), time.Local)
		if err != nil {
			return fmt.Errorf("--%s %w", t.flag, err)
		}
		*t.text = v.Format(time.RFC3339)
	}
	return nil
}

func reserveAddCommand(env Env) *cobra.Command {
	t := target{env: env}
	var q reserve.Request
	var asJSON bool
	c := &cobra.Command{
		Use:   "add",
		Short: "Make a reservation",
		Long: "add makes a reservation, or says why not: what is malformed or over, who may not, what is above the owner's quota, and\n" +
			"what the path has no room for beside other reservations. Once it is made it survives a restart of the agent.",
		Example: "  trunkline reserve add --remote 203.0.113.0/24 --rate 1Gbit --for 2h --rtt 135ms\n" +
			"  trunkline reserve add --remote 203.0.113.9,2001:db8::9 --rate 10Gbit --share 25% --start '2026-12-01 14:00' --end '2026-12-01 18:00' --owner astro",
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case len(q.Remote) == 0:
				return errors.New("--remote is missing; name the end points, like --remote 203.0.113.0/24")
			case q.Rate == "":
				return errors.New("--rate is missing; name it, like --rate 1Gbit")
			case q.End == "" && q.For == "":
				return errors.New("neither --end nor --for is given; say how long, like --for 2h")
			}
			return settle(&q)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := ask(&t, func(c *control.Client) (reserve.Reservation, error) { return c.Reserve(cmd.Context(), q) })
			return showChanged(env.Stdout, r, err, asJSON)
		},
	}
	requestFlags(c, &q)
	c.Flags().StringVar(&q.ID, "id", "", "its name (default the next number, like r7)")
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func reserveChangeCommand(env Env) *cobra.Command {
	t := target{env: env}
	var q reserve.Request
	var asJSON bool
	c := &cobra.Command{
		Use:   "change ID",
		Short: "Change a reservation",
		Long: "change changes what its flags name, as a whole or not at all. With another --start alone the reservation moves and lasts as\n" +
			"long. What was measured of end points that stay is kept.",
		Example: "  trunkline reserve change r1 --rate 2Gbit\n  trunkline reserve change r1 --end +3h",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			changed := false
			for _, name := range []string{"remote", "rate", "share", "start", "end", "for", "owner", "rtt", "probe"} {
				changed = changed || cmd.Flags().Changed(name)
			}
			if !changed {
				return errors.New("nothing to change; name it, like --rate 2Gbit")
			}
			return settle(&q)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask(&t, func(c *control.Client) (reserve.Reservation, error) {
				return c.ChangeReservation(cmd.Context(), args[0], q)
			})
			return showChanged(env.Stdout, r, err, asJSON)
		},
	}
	requestFlags(c, &q)
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func reserveEndCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "end ID",
		Short: "End a reservation now",
		Long: "end ends a reservation before its time, or one that has not begun. Live connections lose pacing and their claim to the\n" +
			"congestion window within a second, and keep their buffers until they close.",
		Example: "  trunkline reserve end r1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask(&t, func(c *control.Client) (reserve.Reservation, error) { return c.EndReservation(cmd.Context(), args[0]) })
			return showChanged(env.Stdout, r, err, asJSON)
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func showChanged(w io.Writer, r reserve.Reservation, err error, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(w, r)
	}
	printReservation(w, r)
	return nil
}
