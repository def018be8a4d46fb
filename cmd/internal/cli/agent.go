// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/agent"
	"github.com/trunkline/trunkline/cmd/internal/config"
)

func agentCommand(env Env) *cobra.Command {
	var path, format, level string
	var log *slog.Logger
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run the daemon",
		Long: "agent runs in the foreground until SIGTERM or SIGINT: then it steers no more, gives the flows in the engine 30 s to\n" +
			"finish, and undoes whatever it changed. A second signal ends it at once. SIGHUP is the same as trunkline reload.",
		Example: "  trunkline agent\n  trunkline agent --config east.yaml --log-level debug",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			var err error
			log, err = newLogger(env.Stderr, format, level)
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := filepath.Abs(path) // for reload, which may be asked for from anywhere
			if err != nil {
				return fmt.Errorf("finding the configuration: %w", err)
			}
			c, err := config.Load(path)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), c, agent.Options{Version: Version, Kernel: kernelRelease(), Log: log})
		},
	}
	c.Flags().StringVar(&path, "config", env.ConfigPath, "the configuration file")
	c.Flags().StringVar(&format, "log-format", "auto", "text, plain (without time, for the journal), json, or auto: text on a terminal, else plain")
	c.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return c
}

// newLogger writes to w; auto leaves the time to the journal unless w is a terminal.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q is unknown; use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	if format == "auto" {
		format = "plain"
		if isTerminal(w) {
			format = "text"
		}
	}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	case "plain":
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	case "text":
	default:
		return nil, fmt.Errorf("--log-format %q is unknown; use text, plain, json or auto", format)
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
