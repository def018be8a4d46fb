// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/proxy"
)

// generated is what keygen --json prints.
type generated struct {
	File        string `json:"file"`
	Created     bool   `json:"created"` // false: it was there
	Fingerprint string `json:"fingerprint"`
}

func keygenCommand(env Env) *cobra.Command {
	var path, configPath, instance string
	var asJSON bool
	c := &cobra.Command{
		Use:   "keygen",
		Short: "This host's key: make it if there is none, and print its fingerprint",
		Long: "keygen makes the key by which peers know this host, unless it is there, and prints the line that goes into the peers'\n" +
			"configuration. Run it again at any time to see the fingerprint: it never replaces a key.",
		Example: "  trunkline keygen\n  trunkline keygen --key /etc/trunkline/key --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := keyFile(env, path, configPath, instance)
			if err != nil {
				return err
			}
			info, statErr := os.Stat(file)
			if statErr == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s is not a regular file; name the key file itself", file)
			}
			id, err := proxy.LoadOrCreateIdentity(file)
			if err != nil {
				return keyAdvice(err)
			}
			g := generated{File: file, Created: errors.Is(statErr, fs.ErrNotExist), Fingerprint: id.Fingerprint()}
			if asJSON {
				return writeJSON(env.Stdout, g)
			}
			printKey(env, g)
			return nil
		},
	}
	c.Flags().StringVar(&path, "key", "", "path of the key file")
	c.Flags().StringVar(&configPath, "config", "", "take the path from this configuration (default "+env.ConfigPath+", if it is there)")
	c.Flags().StringVar(&instance, "instance", "", "the key of this instance, in its state directory")
	c.MarkFlagsMutuallyExclusive("key", "config", "instance")
	jsonFlag(c, &asJSON)
	return c
}

func keyFile(env Env, path, configPath, instance string) (string, error) {
	switch {
	case path != "":
		return path, nil
	case instance != "":
		return filepath.Join(env.StateRoot, instance, "key"), nil
	case configPath != "":
		located, err := config.Locate(configPath)
		if err != nil {
			return "", err
		}
		return located.Key, nil
	}
	located, err := config.Locate(env.ConfigPath)
	switch {
	case err == nil:
		return located.Key, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", keyAdvice(err) // to make a key in another place than the agent's would mislead
	}
	return filepath.Join(env.StateRoot, "default", "key"), nil
}

func keyAdvice(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; use sudo, or --key for a file of your own", err)
	}
	return err
}

func printKey(env Env, g generated) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "NAME"
	}
	what := "the key in"
	if g.Created {
		what = "made a key in"
	}
	fmt.Fprintf(env.Stderr, "%s %s; in the peers' configuration, with this host's address:\n", what, g.File)
	fmt.Fprintf(env.Stdout, "  - {name: %s, address: \"ADDRESS:4820\", key: \"%s\"}\n", name, g.Fingerprint)
}
