// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/agent"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
)

func explainCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	var remote netip.AddrPort
	c := &cobra.Command{
		Use:   "explain ADDRESS:PORT",
		Short: "Which rule applies, and why",
		Long: "explain says which rule a connection gets whose other end is ADDRESS and whose service is on PORT, why the others do\n" +
			"not apply, and what the rule gives; with `congestion: auto` also what is chosen for the path, why, and what was before.\n" +
			"It asks the running agent, or reads a file with --config.",
		Example: "  trunkline explain 203.0.113.9:80\n  trunkline explain '[2001:db8::9]:443' --config new.yaml",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			var err error
			if remote, err = netip.ParseAddrPort(args[0]); err != nil || remote.Port() == 0 {
				return fmt.Errorf("%q is not an address and a port, like 203.0.113.9:80 or [2001:db8::9]:443", args[0])
			}
			remote = netip.AddrPortFrom(remote.Addr().Unmap().WithZone(""), remote.Port())
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := explain(cmd, t, remote)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, e)
			}
			printExplanation(env.Stdout, e)
			return nil
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func explain(cmd *cobra.Command, t target, remote netip.AddrPort) (control.Explanation, error) {
	if t.config == "" {
		e, err := ask(&t, func(c *control.Client) (control.Explanation, error) { return c.Explain(cmd.Context(), remote) })
		if err != nil {
			return e, fmt.Errorf("%w; without an agent use --config FILE", err)
		}
		return e, nil
	}
	c, err := config.Load(t.config)
	if err != nil {
		return control.Explanation{}, err
	}
	return agent.ExplainFile(c, remote)
}

func printExplanation(w io.Writer, e control.Explanation) {
	if !e.Matched {
		fmt.Fprintf(w, "%s: no rule applies; the connection is left alone\n", e.Remote)
	} else {
		fmt.Fprintf(w, "%s: rule %s (line %d)\n\n", e.Remote, e.Rule, e.Line)
		gets := table{header: []string{"IT GIVES", ""}}
		for _, s := range e.Gets {
			gets.add(s.Name, s.Value)
		}
		gets.print(w)
	}
	if e.Auto != nil {
		printAuto(w, e.Auto)
	}
	if len(e.Steps) == 0 {
		return
	}
	fmt.Fprintln(w)
	steps := table{header: []string{"", "RULE", "LINE", "FOR", "WHY"}, limit: []int{0, 24, 0, 30}}
	for _, s := range e.Steps {
		mark := ""
		if s.Applies {
			mark = "=>"
		}
		steps.add(mark, s.Rule, fmt.Sprint(s.Line), s.Match, s.Why)
	}
	steps.print(w)
}
