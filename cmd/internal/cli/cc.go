// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cc"
)

func ccCommand(env Env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "cc",
		Short: "The congestion controls, and where each comes from",
		Long: "cc lists every congestion control that a rule can name: those that trunkline brings along (tl), the kernel's modules and\n" +
			"what is built into it; what each reacts to, what it needs of the kernel, whether the kernel offers it now, and how\n" +
			"many connections of this network namespace have it. It asks this machine, not the agent; flows are counted for root.",
		Example: "  trunkline cc\n  trunkline cc --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := cc.List()
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, map[string][]cc.Entry{"algorithms": list})
			}
			printAlgorithms(env.Stdout, list)
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func printAlgorithms(w io.Writer, list []cc.Entry) {
	t := table{header: []string{"NAME", "SOURCE", "REACTS TO", "FLOWS", "NEEDS", "LOADED"}}
	for _, e := range list {
		flows, loaded := "-", "yes"
		if e.Flows != nil {
			flows = strconv.Itoa(*e.Flows)
		}
		if !e.Loaded {
			loaded = "no: " + e.How
		}
		t.add(e.Name, string(e.Source), orDash(string(e.Reacts)), flows, orDash(e.Needs), loaded)
	}
	t.print(w)
}
