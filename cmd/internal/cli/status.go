// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func statusCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Health, features and the reasons why flows are not optimised",
		Long: "status says whether the agent is well, what this kernel lets it do, how its peers are, and why flows that a rule\n" +
			"would have deduplicated were not: apart those that are meant so and those that want attention.",
		Example: "  trunkline status\n  trunkline status --instance east --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := ask(&t, func(c *control.Client) (control.Status, error) { return c.Status(cmd.Context()) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, s)
			}
			printStatus(env.Stdout, s)
			return nil
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func printStatus(w io.Writer, s control.Status) {
	fmt.Fprintf(w, "instance %s: %s\n", s.Instance, s.Health)
	for _, p := range s.Problems {
		fmt.Fprintln(w, "  ! "+strings.Join(wrap(p, pageWidth-4), "\n    "))
	}
	indented(w, fmt.Sprintf("trunkline %s, protocol %d, Linux %s, pid %d, up %s", s.Version, s.Protocol, s.Kernel, s.PID,
		units.FormatDuration(time.Duration(s.UptimeSeconds*float64(time.Second)))))
	listen := "nowhere"
	if len(s.Listen) > 0 {
		listen = strings.Join(s.Listen, ", ")
	}
	indented(w, fmt.Sprintf("%s: %s, cgroup %s, peers connect to %s", s.Config, count(s.Rules, "rule"), s.Cgroup, listen))
	fmt.Fprintf(w, "  %s in the engine\n", count(s.ActiveFlows, "flow"))
	indented(w, historyLine(s.History))
	if s.Auto != nil {
		indented(w, autoLine(*s.Auto))
	}
	fmt.Fprintln(w)

	features := table{header: []string{"FEATURE", "", "DETAIL"}}
	for _, f := range s.Features {
		state, detail := "on", f.Detail
		if !f.On {
			state = "off"
			if f.Remedy != "" {
				detail += "; " + advice(f.Remedy)
			}
		}
		features.add(f.Name, state, detail)
	}
	features.print(w)
	if len(s.Peers) > 0 {
		fmt.Fprintln(w)
		printPeers(w, s.Peers)
	}
	printReasons(w, s.Reasons)
}

func indented(w io.Writer, text string) {
	fmt.Fprintln(w, "  "+strings.Join(wrap(text, pageWidth-4), "\n    "))
}

func printReasons(w io.Writer, reasons []control.Reason) {
	for _, part := range []struct {
		title    string
		intended bool
	}{{"WANTS ATTENTION", false}, {"AS INTENDED", true}} {
		t := table{header: []string{part.title, "FLOWS", "WHY AND WHAT TO DO"}}
		for _, r := range reasons {
			if r.Intended == part.intended {
				t.add(r.Name, fmt.Sprint(r.Count), r.Meaning+"; "+advice(r.Action))
			}
		}
		if len(t.rows) > 0 {
			fmt.Fprintln(w)
			t.print(w)
		}
	}
}

// advice has the table's "none" read as part of a sentence.
func advice(action string) string {
	for _, none := range []string{"none:", "none,"} {
		if rest, ok := strings.CutPrefix(action, none); ok {
			return "nothing to do" + none[len("none"):] + rest
		}
	}
	return action
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
