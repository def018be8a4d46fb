// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/proxy/history"
)

// cleaned is what cleanup did for one instance.
type cleaned struct {
	Instance string          `json:"instance"`
	Results  []ledger.Result `json:"results"`
	Error    string          `json:"error,omitempty"`

	History      string `json:"history_directory,omitempty"` // where there are files of histories
	HistoryBytes int64  `json:"history_bytes,omitempty"`     // what they take
	Removed      bool   `json:"history_removed,omitempty"`
}

// instanceDir is an instance and its state directory.
type instanceDir struct{ instance, dir, history string }

// place gives the usual one for histories.
func place(instance, dir string) instanceDir {
	return instanceDir{instance, dir, filepath.Join(dir, "history")}
}

func cleanupCommand(env Env) *cobra.Command {
	var instance, stateDir, configPath string
	var asJSON, histories bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Undo everything, leave nothing",
		Long: "cleanup undoes what an agent that is gone has written in its ledger: sysctls, pins, directories, and before\n" +
			"Linux 6.4 congestion controls. Nothing else is\n" +
			"touched; what someone else has changed since is left alone and reported. Programs and links need no cleaning: they go\n" +
			"with the process, even on kill -9; before Linux 6.6 filters at interfaces do not, and are undone in the network namespace\n" +
			"that cleanup runs in. Keys, configuration, what was learnt of paths (paths.db), reservations\n" +
			"(reservations.db) and histories stay; --history has the files of histories removed as well.",
		Example: "  trunkline cleanup                      # every instance under " + env.StateRoot + "\n" +
			"  trunkline cleanup --instance east\n  trunkline cleanup --state-dir /srv/trunkline/east",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var found []instanceDir
			switch {
			case configPath != "":
				located, err := config.Locate(configPath)
				if err != nil {
					return err
				}
				found = []instanceDir{{located.Instance, located.StateDir, historyDirectory(located)}}
			case stateDir != "":
				found = []instanceDir{place(filepath.Base(filepath.Clean(stateDir)), filepath.Clean(stateDir))}
			case instance != "all":
				found = []instanceDir{place(instance, filepath.Join(env.StateRoot, instance))}
			default:
				var err error
				if found, err = allInstances(env); err != nil {
					return err
				}
			}
			return cleanup(cmd.Context(), env, found, histories, asJSON)
		},
	}
	c.Flags().StringVar(&instance, "instance", "all", "the instance, or all of them")
	c.Flags().StringVar(&stateDir, "state-dir", "", "the instance's state directory, if it is not the default")
	c.Flags().StringVar(&configPath, "config", "", "take the state directory from this configuration")
	c.MarkFlagsMutuallyExclusive("instance", "state-dir", "config")
	c.Flags().BoolVar(&histories, "history", false, "remove histories, too")
	jsonFlag(c, &asJSON)
	return c
}

// allInstances are those in the usual place, and that of the usual configuration, which may keep its state elsewhere.
func allInstances(env Env) ([]instanceDir, error) {
	dirs, err := os.ReadDir(env.StateRoot)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("looking for instances: %w; use sudo", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("looking for instances: %w", err)
	}
	var found []instanceDir
	c, configErr := config.Locate(env.ConfigPath)
	add := func(i instanceDir) {
		if configErr == nil && i.dir == c.StateDir {
			i.history = historyDirectory(c)
		}
		if _, err := os.Stat(filepath.Join(i.dir, "ledger.db")); err == nil {
			found = append(found, i)
		}
	}
	for _, d := range dirs {
		add(place(d.Name(), filepath.Join(env.StateRoot, d.Name())))
	}
	if configErr == nil && filepath.Dir(c.StateDir) != filepath.Clean(env.StateRoot) {
		add(place(c.Instance, c.StateDir))
	}
	return found, nil
}

func cleanup(ctx context.Context, env Env, instances []instanceDir, histories, asJSON bool) error {
	all := []cleaned{}
	var failed []error
	for _, i := range instances {
		one := cleaned{Instance: i.instance, Results: []ledger.Result{}}
		results, err := loader.Cleanup(ctx, filepath.Dir(i.dir), filepath.Base(i.dir), slog.New(slog.DiscardHandler))
		if errors.Is(err, ledger.ErrInUse) {
			err = errors.New("its agent runs; stop it first (systemctl stop trunkline), it then cleans up by itself")
		}
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; use sudo", err)
		}
		if err != nil {
			one.Error = err.Error()
			failed = append(failed, fmt.Errorf("instance %s: %w", one.Instance, err))
		}
		one.Results = append(one.Results, results...)
		if err := one.histories(i.history, histories); err != nil {
			failed = append(failed, fmt.Errorf("instance %s: %w", one.Instance, err))
		}
		all = append(all, one)
	}
	if asJSON {
		return errors.Join(append([]error{writeJSON(env.Stdout, all)}, failed...)...)
	}
	t := table{header: []string{"INSTANCE", "KIND", "WHAT", "OUTCOME", "DETAIL"}, limit: []int{16, 0, 48}}
	for _, c := range all {
		for _, r := range c.Results {
			t.add(c.Instance, string(r.Entry.Kind), r.Entry.Target, outcome(r), r.Detail)
		}
	}
	switch {
	case len(t.rows) > 0:
		t.print(env.Stdout)
	case len(failed) == 0:
		fmt.Fprintln(env.Stdout, "nothing to undo")
	}
	for _, c := range all {
		switch {
		case c.Removed:
			fmt.Fprintf(env.Stdout, "removed the histories of instance %s in %s: %s\n", c.Instance, c.History, units.FormatSize(c.HistoryBytes))
		case c.HistoryBytes > 0:
			fmt.Fprintf(env.Stdout, "the histories of instance %s stay in %s: %s; trunkline cleanup --history removes them\n",
				c.Instance, c.History, units.FormatSize(c.HistoryBytes))
		}
	}
	return errors.Join(failed...)
}

// histories looks for files of histories, and removes them if that is wanted.
func (c *cleaned) histories(directory string, remove bool) error {
	if _, err := os.Stat(directory); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	bytes, err := history.DiskUsage(directory)
	if err != nil {
		return fmt.Errorf("looking for histories: %w; use sudo", err)
	}
	c.History, c.HistoryBytes = directory, bytes
	if !remove {
		return nil
	}
	if _, err := history.Remove(directory, nil, ""); err != nil {
		return fmt.Errorf("removing histories: %w", err)
	}
	c.Removed = true
	return nil
}

// outcome says for files what "restored" means: they are gone.
func outcome(r ledger.Result) string {
	if r.Outcome == ledger.Restored && r.Entry.Kind != ledger.Sysctl {
		return "removed"
	}
	return string(r.Outcome)
}
