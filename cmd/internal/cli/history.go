// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/proxy"
	"github.com/trunkline/trunkline/proxy/history"
)

func historyCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "history",
		Short: "What is remembered of each peer, and how much it takes",
		Long: "history lists what this agent and its peers both hold, by peer, direction and group: what is allocated for it, how far\n" +
			"back references may reach, what of it is in memory and on disk, and how much may be referred to now (sent) or is\n" +
			"there (received). `trunkline history purge` forgets it.",
		Example: "  trunkline history\n  trunkline history --json\n  trunkline history purge --peer busan --group web",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := ask(&t, func(c *control.Client) (control.Histories, error) { return c.History(cmd.Context()) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, h)
			}
			printHistories(env.Stdout, h)
			return nil
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	c.AddCommand(purgeCommand(env))
	return c
}

func printHistories(w io.Writer, h control.Histories) {
	fmt.Fprintln(w, strings.Join(wrap(historyLine(h.History), pageWidth-2), "\n  "))
	if len(h.Groups) == 0 {
		fmt.Fprintln(w, "nothing is remembered yet")
		return
	}
	fmt.Fprintln(w)
	t := table{header: []string{"PEER", "DIRECTION", "GROUP", "HELD", "BOUND", "MEMORY", "DISK", "KNOWN", "GENERATION"}, limit: []int{16, 0, 20}}
	for _, g := range h.Groups {
		t.add(g.Peer, g.Direction, g.Group, units.FormatSize(g.Held), units.FormatSize(g.Bound), units.FormatSize(g.Memory+g.Index),
			value(g.Disk > 0, units.FormatSize(g.Disk)), units.FormatSize(g.Known), fmt.Sprintf("%x", g.Generation))
		if g.Problem != "" {
			t.note(g.Problem)
		}
	}
	t.print(w)
}

// historyLine sums up what histories take.
func historyLine(h control.History) string {
	line := fmt.Sprintf("histories: %s of %s in memory, indexes %s", units.FormatSize(h.MemoryBytes), units.FormatSize(h.MemoryLimit),
		units.FormatSize(h.IndexBytes))
	if h.DiskLimit > 0 {
		line += fmt.Sprintf("; %s of %s in %s", units.FormatSize(h.DiskBytes), units.FormatSize(h.DiskLimit), h.Directory)
	}
	return line
}

func purgeCommand(env Env) *cobra.Command {
	t := target{env: env}
	var peer, group string
	var asJSON bool
	c := &cobra.Command{
		Use:   "purge",
		Short: "Forget what was sent to and received from peers",
		Long: "purge forgets histories: all of them, or those with one peer, or of one group. Flows go on, and begin them anew; the\n" +
			"peers are told. If the agent does not run, the files are removed. What the peers hold stays there: purge at\n" +
			"both ends.",
		Example: "  trunkline history purge\n  trunkline history purge --peer busan\n  trunkline history purge --group web",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := ask(&t, func(c *control.Client) (control.Purged, error) { return c.PurgeHistory(cmd.Context(), peer, group) })
			if errors.Is(err, control.ErrNotRunning) {
				p, err = purgeFiles(&t, peer, group, err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, p)
			}
			freed := ""
			if p.Bytes > 0 {
				freed = ", " + units.FormatSize(p.Bytes) + " are free"
			}
			fmt.Fprintf(env.Stdout, "purged %d histories%s\n", p.Histories, freed)
			return nil
		},
	}
	c.Flags().StringVar(&peer, "peer", "", "only those with this peer: its name, or its fingerprint")
	c.Flags().StringVar(&group, "group", "", "only those of this group")
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

// purgeFiles does without an agent. running is what was said when it was asked.
func purgeFiles(t *target, peer, group string, running error) (p control.Purged, err error) {
	directory, path, err := t.histories()
	if err != nil {
		return p, fmt.Errorf("%w; and without it: %w", running, err)
	}
	var key []byte
	if peer != "" {
		if key, err = peerKey(path, peer); err != nil {
			return p, err
		}
	}
	p.Histories, err = history.Remove(directory, key, group)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return p, fmt.Errorf("%w; use sudo", err)
	case errors.Is(err, history.ErrInUse):
		return p, fmt.Errorf("%w, and does not answer: %w", err, running)
	}
	return p, err
}

// histories finds where an agent keeps its histories, and its configuration.
func (t *target) histories() (directory, path string, err error) {
	path = t.config
	if path == "" {
		path = t.env.ConfigPath
	}
	switch {
	case t.socket != "":
		return "", "", errors.New("a socket does not say where the files are; name the agent by --config or --instance")
	case t.instance != "":
		return filepath.Join(t.env.StateRoot, t.instance, "history"), path, nil
	}
	c, err := config.Locate(path)
	if err != nil {
		return "", "", err
	}
	return historyDirectory(c), path, nil
}

// historyDirectory is where files of histories may be, whether the configuration wants any now or not.
func historyDirectory(c *config.Config) string {
	if c.History.Directory != "" {
		return c.History.Directory
	}
	return filepath.Join(c.StateDir, "history")
}

// peerKey finds a peer's key by its name in the configuration, or by its fingerprint.
func peerKey(path, peer string) ([]byte, error) {
	fingerprint := peer
	if c, err := config.Load(path); err == nil {
		if i := slices.IndexFunc(c.Peers, func(p config.Peer) bool { return p.Name == peer }); i >= 0 {
			fingerprint = c.Peers[i].Key
		}
	}
	key, err := proxy.ParseFingerprint(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("no peer is called %s in %s, and it is no fingerprint (ed25519:...)", peer, path)
	}
	return key, nil
}
