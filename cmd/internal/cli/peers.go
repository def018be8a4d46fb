// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func peersCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	c := &cobra.Command{
		Use:   "peers",
		Short: "Peers, and what was saved towards each",
		Long: "peers lists the other agents: whether each answers, its round-trip time, the connections (legs) in use and kept warm,\n" +
			"and how many bytes of the applications crossed the WAN as how many.",
		Example: "  trunkline peers\n  trunkline peers --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			peers, err := ask(&t, func(c *control.Client) ([]control.Peer, error) { return c.Peers(cmd.Context()) })
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(env.Stdout, map[string][]control.Peer{"peers": peers})
			}
			if len(peers) == 0 {
				fmt.Fprintln(env.Stdout, "no peers are configured")
				return nil
			}
			printPeers(env.Stdout, peers)
			return nil
		},
	}
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func printPeers(w io.Writer, peers []control.Peer) {
	t := table{header: []string{"PEER", "STATE", "RTT", "USED+WARM", "SENT", "RECEIVED", "HISTORY"}, limit: []int{16}}
	for _, p := range peers {
		state, rtt := "down", "-"
		if p.Up {
			state = "up"
		}
		if !p.Since.IsZero() {
			state += " " + units.FormatDuration(time.Since(p.Since))
		}
		if p.RTTMicroseconds > 0 {
			rtt = units.FormatDuration(time.Duration(p.RTTMicroseconds) * time.Microsecond)
		}
		t.add(p.Name, state, rtt, fmt.Sprintf("%d+%d", p.LegsUsed, p.LegsWarm), savings(p.RawSent, p.WireSent),
			savings(p.RawReceived, p.WireReceived), units.FormatSize(p.History))
		if p.Codec != "" {
			t.note("codec " + p.Codec)
		}
		if !p.Up {
			t.note(fmt.Sprintf("%s: %s", orDash(p.Reason), orDash(p.Detail)))
		}
	}
	t.print(w)
}

// savings writes what the applications' bytes became on the wire.
func savings(raw, wire uint64) string {
	if raw == 0 && wire == 0 {
		return "-"
	}
	return fmt.Sprintf("%s -> %s %s", units.FormatSize(raw), units.FormatSize(wire), units.FormatRatio(raw, wire))
}
