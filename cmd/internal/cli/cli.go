// SPDX-License-Identifier: Apache-2.0

// Package cli is trunkline's command line. Nouns read (status, flows, peers, history, explain, cc, bdp, check, estimate, version); verbs change
// (agent, reload, drain, cleanup, keygen, reserve, demo, bench). Every command that reads has --json.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

// Version is set at build time.
var Version = "unknown"

// Env is the world the commands see, so that tests can run them in-process.
type Env struct {
	Stdout, Stderr io.Writer
	ConfigPath     string // default of --config
	StateRoot      string // holds one state directory per instance
	RunRoot        string // holds one run directory per instance
}

// System is the world as it is.
func System() Env {
	return Env{Stdout: os.Stdout, Stderr: os.Stderr, ConfigPath: config.DefaultPath,
		StateRoot: config.DefaultStateRoot, RunRoot: config.DefaultRunRoot}
}

// Exit codes.
const (
	exitError = 1
	exitUsage = 2
)

// Run runs one command line (without the program's name) and returns the exit code.
func Run(ctx context.Context, env Env, args []string) int {
	root := newRoot(env)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var silent exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &silent):
		return int(silent)
	case !started:
		// Everything before a command's own work is about how it was called.
		fmt.Fprintf(env.Stderr, "trunkline: %s; see %s --help\n", oneLine(err), cmd.CommandPath())
		return exitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(env.Stderr, "trunkline: interrupted")
		return exitError
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(env.Stderr, "trunkline: %s\n", line)
	}
	return exitError
}

// exitCode ends a command whose output has said everything already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "trunkline",
		Short: "Make TCP over long, thin or lossy paths fast",
		Long: "trunkline tunes TCP by rules inside the kernel, and sends a peer agent only what it does not already hold.\n" +
			"Commands that are nouns read, those that are verbs change.",
		Version:       versions().String(), // gives --version
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.AddGroup(&cobra.Group{ID: "read", Title: "Reading:"}, &cobra.Group{ID: "change", Title: "Changing:"})
	for _, c := range []*cobra.Command{
		statusCommand(env), flowsCommand(env), peersCommand(env), historyCommand(env), explainCommand(env), ccCommand(env), bdpCommand(env), checkCommand(env), estimateCommand(env), versionCommand(env),
	} {
		c.GroupID = "read"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{
		agentCommand(env), reloadCommand(env), drainCommand(env), cleanupCommand(env), keygenCommand(env), reserveCommand(env), demoCommand(env),
		benchCommand(env),
	} {
		c.GroupID = "change"
		root.AddCommand(c)
	}
	root.AddCommand(demoChildren()...)
	root.AddCommand(benchChildren()...)
	return root
}

// writeJSON prints v the way every --json does.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

func jsonFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print JSON")
}
