// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
)

// checked is what check --json prints.
type checked struct {
	File     string              `json:"file"`
	OK       bool                `json:"ok"`
	Findings []hostcheck.Finding `json:"findings"`
}

func checkCommand(env Env) *cobra.Command {
	var path string
	var syntaxOnly, asJSON bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate a configuration, and this host for it",
		Long: "check reads a configuration as the agent would and names every mistake in it; then it looks whether this host has what\n" +
			"the configuration needs. It changes nothing. Errors keep the agent from starting, warnings do not.",
		Example: "  trunkline check\n  trunkline check new.yaml --syntax",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if path == "" {
				path = env.ConfigPath
			}
			if len(args) == 1 {
				path = args[0]
			}
			report := check(cmd.Context(), path, syntaxOnly)
			if asJSON {
				if err := writeJSON(env.Stdout, report); err != nil {
					return err
				}
			} else {
				printFindings(env, report)
			}
			if !report.OK {
				return exitCode(exitError)
			}
			return nil
		},
	}
	c.Flags().StringVar(&path, "config", "", "the file, as for the other commands (default "+env.ConfigPath+")")
	c.Flags().BoolVar(&syntaxOnly, "syntax", false, "look at the file only, not at this host")
	jsonFlag(c, &asJSON)
	return c
}

func check(ctx context.Context, path string, syntaxOnly bool) checked {
	report := checked{File: path, OK: true}
	c, findings := readConfig(path)
	report.Findings = findings
	if c != nil && !syntaxOnly {
		running, err := control.NewClient(c.Socket(), c.Instance).Status(ctx)
		if err != nil {
			report.Findings = append(report.Findings, hostcheck.Host(ctx, c, nil)...)
		} else {
			report.Findings = append(report.Findings, hostcheck.Host(ctx, c, &running)...)
		}
	}
	for _, f := range report.Findings {
		report.OK = report.OK && f.Level != hostcheck.Error
	}
	return report
}

func readConfig(path string) (*config.Config, []hostcheck.Finding) {
	finding := func(l hostcheck.Level, text string) hostcheck.Finding {
		return hostcheck.Finding{Level: l, Subject: "configuration", Text: text}
	}
	c, err := config.Load(path)
	if err == nil {
		_, err = c.Policy()
	}
	var findings []hostcheck.Finding
	if problems, ok := err.(config.Problems); ok {
		for _, p := range problems {
			findings = append(findings, finding(hostcheck.Error, p.Error()))
		}
		return nil, findings
	}
	if err != nil {
		return nil, append(findings, finding(hostcheck.Error, err.Error()))
	}
	findings = append(findings, finding(hostcheck.OK, fmt.Sprintf("%s: instance %s, %s, %s", path, c.Instance,
		count(len(c.Rules), "rule"), count(len(c.Peers), "peer"))))
	for _, w := range c.Warnings {
		findings = append(findings, finding(hostcheck.Warning, w.Error()))
	}
	return c, findings
}

// printFindings leaves lines whole, so that a line is a finding for grep and for the journal.
func printFindings(env Env, report checked) {
	for _, f := range report.Findings {
		fmt.Fprintf(env.Stdout, "%-7s  %-13s  %s\n", f.Level, f.Subject, f.Text)
	}
}
