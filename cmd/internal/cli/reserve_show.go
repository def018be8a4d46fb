// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func reserveListCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON, all bool
	var owner string
	c := &cobra.Command{
		Use:     "list",
		Short:   "All reservations",
		Long:    "list shows the reservations that have not ended, in the order of their starts; with --all also those that did within a week.",
		Example: "  trunkline reserve list\n  trunkline reserve list --all --owner astro --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := ask(&t, func(c *control.Client) (control.Reservations, error) { return c.Reservations(cmd.Context()) })
			if err != nil {
				return err
			}
			kept := []reserve.Reservation{}
			for _, r := range found.Reservations {
				if (all || r.State != reserve.Ended) && (owner == "" || r.Owner == owner) {
					kept = append(kept, r)
				}
			}
			found.Reservations = kept
			if asJSON {
				return writeJSON(env.Stdout, found)
			}
			printReservations(env.Stdout, found)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that have ended")
	c.Flags().StringVar(&owner, "owner", "", "only this owner's")
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func printReservations(w io.Writer, found control.Reservations) {
	t := table{header: []string{"ID", "OWNER", "RATE", "TO", "START", "END", "STATE", "GOODPUT"}, limit: []int{16, 12, 0, 22}}
	for _, r := range found.Reservations {
		to := r.EndPoints[0].Remote.String()
		if n := len(r.EndPoints); n > 1 {
			to += fmt.Sprintf(" +%d", n-1)
		}
		t.add(r.ID, r.Owner, units.FormatRate(float64(r.RateBps)*8), to, shortTime(r.Start), shortTime(endOf(r)), string(r.State), goodputText(r))
		if r.Reason != "" {
			t.note(r.Reason)
		}
	}
	if len(t.rows) == 0 {
		fmt.Fprintln(w, "no reservations (--all shows those that ended, too)")
	} else {
		t.print(w)
	}
	for _, p := range found.Problems {
		if !strings.Contains(p, "is suspended") { // those stand above
			fmt.Fprintln(w, "\n"+strings.Join(wrap(p, pageWidth), "\n"))
		}
	}
}

func endOf(r reserve.Reservation) time.Time {
	if r.State == reserve.Ended {
		return r.EndedAt
	}
	return r.End
}

// shortTime leaves out a year that is this one.
func shortTime(t time.Time) string {
	t = t.Local()
	if t.Year() != time.Now().Year() {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("01-02 15:04")
}

// goodputText sets what connections reach against what is reserved.
func goodputText(r reserve.Reservation) string {
	now := max(r.Use.GoodputBps, r.Use.ReceivedBps)
	if r.State == reserve.Ended {
		now = r.Use.PeakBps
	}
	if now == 0 {
		return "-"
	}
	return percentOf(now, r.HostRateBps())
}

func percentOf(part, whole uint64) string {
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(max(whole, 1)))
}

func reserveShowCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "One reservation: the path as measured, what is in force, and the goodput reached",
		Long: "show prints a reservation with the round-trip times that were measured, when and how often, the tuning values in force, why\n" +
			"it is suspended if it is, and the goodput that its connections reach against the reserved rate. Goodput is payload: headers\n" +
			"take 4.4 % of the rate at an MTU of 1500 bytes.",
		Example: "  trunkline reserve show r1\n  trunkline reserve show r1 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := ask(&t, func(c *control.Client) (reserve.Reservation, error) { return c.Reservation(cmd.Context(), args[0]) })
			return showChanged(env.Stdout, r, err, asJSON)
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func printReservation(w io.Writer, r reserve.Reservation) {
	line := func(name, format string, args ...any) {
		text := wrap(fmt.Sprintf(format, args...), pageWidth-13)
		fmt.Fprintf(w, "  %-10s %s\n", name, strings.Join(text, "\n"+strings.Repeat(" ", 13)))
	}
	fmt.Fprintf(w, "%s: %s\n", r.ID, stateText(r))
	if r.Reason != "" {
		line("why", "%s", r.Reason)
	}
	line("owner", "%s, made by %s at %s", r.Owner, r.MadeBy, longTime(r.Made))
	if r.System != "" {
		line("system", "%s", r.System)
	}
	line("time", "%s to %s (%s)", longTime(r.Start), longTime(r.End), units.FormatDuration(r.End.Sub(r.Start)))
	share := ""
	if r.Share < 1 {
		share = fmt.Sprintf(", this host's part %.4g %%: %s", 100*r.Share, units.FormatRate(float64(r.HostRateBps())*8))
	}
	line("rate", "%s%s", units.FormatRate(float64(r.RateBps)*8), share)
	for i, e := range r.EndPoints {
		name := "to"
		if i > 0 {
			name = ""
		}
		line(name, "%s", endPointText(e))
	}
	if t := r.Tuning; t != nil {
		name := "in force"
		if r.State == reserve.Ended {
			name = "was"
		}
		line(name, "window %s (%d bytes, %d segments at 1500), since %s", units.FormatSize(t.WindowBytes), t.WindowBytes, t.Segments[0].Count, longTime(t.Since))
		if t.Limited != "" {
			line("", "%s", t.Limited)
		}
	}
	printUse(line, r)
}

func stateText(r reserve.Reservation) string {
	switch r.State {
	case reserve.Pending:
		return "pending, begins in " + units.FormatDuration(max(time.Until(r.Start), 0).Round(time.Second))
	case reserve.Active:
		return "active, ends in " + units.FormatDuration(max(time.Until(r.End), 0).Round(time.Second))
	case reserve.Suspended:
		return "suspended, connections are as under window: auto"
	}
	if r.EndedBy != "" {
		return "ended by " + r.EndedBy + " at " + longTime(r.EndedAt)
	}
	return "ended at " + longTime(r.EndedAt)
}

func longTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

func endPointText(e reserve.EndPoint) string {
	text := e.Remote.String()
	switch {
	case e.RTTus == 0:
		text += ", round-trip time not measured yet"
	case e.Given:
		text += fmt.Sprintf(", round-trip time %s as the request says", units.FormatDuration(e.RTT()))
	default:
		text += fmt.Sprintf(", round-trip time %s of %s, measured %d times since, latest %s by %s", units.FormatDuration(e.RTT()), longTime(e.RTTAt),
			e.Count, units.FormatDuration(time.Duration(e.LastUs)*time.Microsecond), e.Source)
	}
	if e.Problem != "" {
		text += "; " + e.Problem
	}
	return text
}

func printUse(line func(name, format string, args ...any), r reserve.Reservation) {
	u, whole := r.Use, r.HostRateBps()
	rate := func(bps uint64) string {
		return fmt.Sprintf("%s (%s)", units.FormatRate(float64(bps)*8), percentOf(bps, whole))
	}
	if u.PeakBps == 0 && u.Flows == 0 {
		line("goodput", "no connection has used it; a rule with window: reserved has to match, see trunkline explain")
		return
	}
	line("goodput", "%s sent and %s received of %s reserved, peak %s", rate(u.GoodputBps), rate(u.ReceivedBps), units.FormatRate(float64(whole)*8), rate(u.PeakBps))
	if len(u.SharedWith) > 0 {
		line("", "together with %s, which has the same end points", strings.Join(u.SharedWith, ", "))
	}
	line("flows", "%d", u.Flows)
	const most = 20
	for i, f := range u.PerFlow {
		if i == most {
			line("", "and %d more; --json has them", len(u.PerFlow)-most)
			break
		}
		line("", "%s -> %s: share %s, goodput %s, window %s, %d retransmits", f.Local, f.Remote, units.FormatRate(float64(f.ShareBps)*8),
			units.FormatRate(float64(f.GoodputBps)*8), windowText(f.WindowBytes), f.Retransmits)
	}
}
