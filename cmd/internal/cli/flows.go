// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

// flowFilter is what the flags ask for.
type flowFilter struct {
	peer, rule, remote string
	all                bool
	prefix             netip.Prefix
}

func flowsCommand(env Env) *cobra.Command {
	t := target{env: env}
	var f flowFilter
	var asJSON, paths bool
	c := &cobra.Command{
		Use:   "flows",
		Short: "Live flows and what each got",
		Long: "flows lists the live TCP connections that a rule or the engine knows, with the congestion control, windows and marks\n" +
			"they really have. A connection that is deduplicated shows up as `steered` (the application's end) and as `leg` (what\n" +
			"crosses the WAN); at the far end as `leg`, `dialled` and `carried` (the engine's account of it). Without --all,\n" +
			"flows that no rule matched are left out. What a reservation gives is this end's half: pacing and the congestion window for what it\n" +
			"sends, the window for what it receives; the other end's agent gives the other. A congestion control with * was chosen for the flow's path, by `congestion: auto`.\n\n" +
			"With --paths it lists what was measured towards each destination prefix instead, over all flows since the agent started,\n" +
			"and what was chosen for it, since when, and why.",
		Example: "  trunkline flows\n  trunkline flows --remote 203.0.113.0/24 --rule web\n  trunkline flows --all --json\n  trunkline flows --paths",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return f.parse() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if paths {
				return showPaths(cmd.Context(), env, &t, asJSON)
			}
			flows, err := ask(&t, func(c *control.Client) ([]control.Flow, error) { return c.Flows(cmd.Context()) })
			if err != nil {
				return err
			}
			flows = f.apply(flows)
			if asJSON {
				return writeJSON(env.Stdout, map[string][]control.Flow{"flows": flows})
			}
			printFlows(env.Stdout, flows)
			return nil
		},
	}
	c.Flags().StringVar(&f.peer, "peer", "", "only flows through this peer")
	c.Flags().StringVar(&f.rule, "rule", "", "only flows under the rule of this name or number")
	c.Flags().StringVar(&f.remote, "remote", "", "only flows whose other end is this address or in this prefix")
	c.Flags().BoolVar(&f.all, "all", false, "also flows that no rule matched")
	c.Flags().BoolVar(&paths, "paths", false, "what was measured towards each destination prefix")
	for _, other := range []string{"peer", "rule", "remote", "all"} {
		c.MarkFlagsMutuallyExclusive("paths", other)
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func (f *flowFilter) parse() error {
	if f.remote == "" {
		return nil
	}
	if a, err := netip.ParseAddr(f.remote); err == nil {
		f.prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(f.remote)
	if err != nil {
		return fmt.Errorf("--remote %q is neither an address nor a prefix; write it like 203.0.113.9 or 203.0.113.0/24", f.remote)
	}
	f.prefix = p.Masked()
	return nil
}

func (f *flowFilter) apply(flows []control.Flow) []control.Flow {
	kept := []control.Flow{}
	for _, w := range flows {
		switch {
		case !f.all && w.RuleID == 0 && w.Engine == nil:
		case f.peer != "" && w.Peer != f.peer:
		case f.rule != "" && w.Rule != f.rule && fmt.Sprint(w.RuleID) != f.rule:
		case f.prefix.IsValid() && !f.prefix.Contains(w.Remote.Addr()):
		default:
			kept = append(kept, w)
		}
	}
	return kept
}

func printFlows(w io.Writer, flows []control.Flow) {
	if len(flows) == 0 {
		fmt.Fprintln(w, "no such flows (--all shows those that no rule matched, too)")
		return
	}
	t := table{
		header: []string{"KIND", "REMOTE", "RULE", "CC", "CWND", "SRTT", "RETR", "MARKED", "WINDOW", "AGE"},
		limit:  []int{0, 21, 10, 13},
	}
	for _, f := range flows {
		tcp := f.Kind != "steered" && f.Cookie != 0
		t.add(f.Kind, f.Remote.String(), orDash(f.Rule), congestionText(f), value(tcp, fmt.Sprint(f.CwndPackets)),
			value(tcp, units.FormatDuration(time.Duration(f.SRTTMicroseconds)*time.Microsecond)), value(tcp, fmt.Sprint(f.Retransmits)),
			value(tcp, fmt.Sprint(f.Marked)), flowWindow(f),
			units.FormatDuration(time.Duration(f.AgeSeconds*float64(time.Second))))
		for _, n := range flowNotes(f) {
			t.note(n)
		}
	}
	t.print(w)
	printChoices(w, flows)
}

// congestionText marks what follows a choice.
func congestionText(f control.Flow) string {
	if f.Auto {
		return f.Congestion + autoMark
	}
	return orDash(f.Congestion)
}

// value is "-" for the application's end of a steered flow, whose loopback figures say nothing about the path, and for the
// engine's own account.
func value(shown bool, s string) string {
	if !shown {
		return "-"
	}
	return s
}

// algorithmText writes what the congestion control keeps of the flow.
func algorithmText(f control.Flow) string {
	parts := []string{"ssthresh " + orDash(ssthreshText(f.SSThreshPackets))}
	for _, name := range slices.Sorted(maps.Keys(f.Algorithm)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", name, f.Algorithm[name]))
	}
	return strings.Join(parts, ", ")
}

func ssthreshText(packets uint32) string {
	if packets == 0 {
		return ""
	}
	return fmt.Sprint(packets)
}

// flowWindow writes the receive window that is fixed, or who decides on it.
func flowWindow(f control.Flow) string {
	if f.WindowBytes == 0 && f.Window != "" && f.Window != "kernel" {
		return f.Window
	}
	return windowText(f.WindowBytes)
}

func windowText(n uint32) string {
	if n == 0 {
		return "auto"
	}
	return units.FormatSize(n)
}

// reservedText says what a flow has of a reservation. It is this end's half: the other end is told on its own.
func reservedText(f control.Flow) string {
	s := fmt.Sprintf("reservation %s: may send %s of the link, paced at %s of payload, cwnd at most %d", f.Reservation,
		units.FormatRate(float64(f.ShareBps)*8), units.FormatRate(float64(f.PacingBps)*8), f.CwndMost)
	if f.InitialPackets > 0 {
		s += fmt.Sprintf(" from %d", f.InitialPackets)
	}
	return s
}

func flowNotes(f control.Flow) []string {
	var notes []string
	if f.Engine != nil {
		through := "through " + f.Peer
		if f.Engine.Direct {
			through = "straight to the destination"
		}
		if f.Engine.Codec != "" {
			through += ", " + f.Engine.Codec
		}
		notes = append(notes, fmt.Sprintf("%s: sent %s, received %s", through,
			savings(f.Engine.RawSent, f.Engine.WireSent), savings(f.Engine.RawReceived, f.Engine.WireReceived)))
	}
	if len(f.Algorithm) > 0 {
		notes = append(notes, f.Congestion+": "+algorithmText(f))
	}
	if f.Reason != "" {
		notes = append(notes, "not optimised: "+f.Reason)
	}
	if f.CongestionError != "" {
		notes = append(notes, "congestion control not set: "+f.CongestionError)
	}
	if f.Reservation != "" {
		notes = append(notes, reservedText(f))
	}
	if f.WindowWhy != "" && (f.Window == "reserved" || f.Window == "fixed") {
		notes = append(notes, "window: "+f.Window+": "+f.WindowWhy)
	}
	if f.WindowError != "" {
		notes = append(notes, "window not set: "+f.WindowError)
	}
	return notes
}
