// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
)

// target says which agent a command is about.
type target struct {
	env                      Env
	config, instance, socket string
}

func (t *target) flags(c *cobra.Command) {
	c.Flags().StringVar(&t.config, "config", "", "the agent's configuration file (default "+t.env.ConfigPath+")")
	c.Flags().StringVar(&t.instance, "instance", "", "name of the agent's instance")
	c.Flags().StringVar(&t.socket, "socket", "", "path of the agent's control socket")
	c.MarkFlagsMutuallyExclusive("config", "instance", "socket")
}

// client finds the socket: as told, else by the instance, else by the configuration. A file with mistakes in it still
// names its instance: `reload` must reach the agent that will explain them.
func (t *target) client() (*control.Client, error) {
	switch {
	case t.socket != "":
		return control.NewClient(t.socket, ""), nil
	case t.instance != "":
		return control.NewClient(filepath.Join(t.env.RunRoot, t.instance, "control.sock"), t.instance), nil
	case t.config != "":
		c, err := config.Locate(t.config)
		if err != nil {
			return nil, err
		}
		return control.NewClient(c.Socket(), c.Instance), nil
	}
	// Whoever may not read the configuration may be of the group that may use the socket, which is in the usual place then.
	if c, err := config.Locate(t.env.ConfigPath); err == nil {
		return control.NewClient(c.Socket(), c.Instance), nil
	}
	return control.NewClient(filepath.Join(t.env.RunRoot, "default", "control.sock"), "default"), nil
}

// ask calls the agent that t is about.
func ask[T any](t *target, call func(*control.Client) (T, error)) (answer T, err error) {
	client, err := t.client()
	if err != nil {
		return answer, err
	}
	return call(client)
}
