// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// product is what bdp --json prints.
type product struct {
	reserve.Tuning
	Sysctls []reserve.Sysctl `json:"sysctls"`
}

func bdpCommand(env Env) *cobra.Command {
	var asJSON bool
	var rate uint64
	var rtt time.Duration
	c := &cobra.Command{
		Use:   "bdp RATE RTT",
		Short: "The window that fills a path, and what it takes",
		Long: "bdp multiplies a rate with a round-trip time: the bytes that have to be under way to fill the path. It says how many\n" +
			"segments that is, which window scale the SYN has to carry, and the sysctls that would give every connection of a\n" +
			"host such a window.",
		Example: "  trunkline bdp 1Gbit 135ms\n  trunkline bdp 10Gbit 20ms --json",
		Args:    cobra.ExactArgs(2),
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if rate, err = units.Rate(args[0]); err != nil {
				return err
			}
			if rtt, err = units.Duration(args[1]); err != nil {
				return err
			}
			switch {
			case rate < 8000 || rate > reserve.MaxRateBps*8:
				return fmt.Errorf("rate %q must be from 8kbit to 1Tbit", args[0])
			case rtt < reserve.MinRTT || rtt > reserve.MaxRTT:
				return fmt.Errorf("time %q must be from %s to %s", args[1], units.FormatDuration(reserve.MinRTT), units.FormatDuration(reserve.MaxRTT))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			t := reserve.TuningFor(rate/8, rtt)
			if asJSON {
				return writeJSON(env.Stdout, product{t, t.Sysctls()})
			}
			printProduct(env.Stdout, t)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func printProduct(w io.Writer, t reserve.Tuning) {
	fmt.Fprintf(w, "%s x %s = %s (%d bytes)\n", units.FormatRate(float64(t.RateBps)*8),
		units.FormatDuration(time.Duration(t.RTTus)*time.Microsecond), units.FormatSize(t.WindowBytes), t.WindowBytes)
	for _, s := range t.Segments {
		fmt.Fprintf(w, "  %d segments at an MTU of %d bytes\n", s.Count, s.MTU)
	}
	fmt.Fprintf(w, "  a window scale of %d in the SYN, a receive buffer of %s\n", t.WindowScale, units.FormatSize(t.BufferBytes))
	if t.Limited != "" {
		fmt.Fprintln(w, "  "+t.Limited)
	}
	fmt.Fprintln(w, "\nAs sysctls, for every connection of the host:")
	for _, s := range t.Sysctls() {
		fmt.Fprintf(w, "  %-36s  # %s\n", s.Name+" = "+s.Value, s.Why)
	}
}
