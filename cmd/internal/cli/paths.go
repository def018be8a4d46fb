// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

func showPaths(ctx context.Context, env Env, t *target, asJSON bool) error {
	paths, err := ask(t, func(c *control.Client) ([]control.Path, error) { return c.Paths(ctx) })
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(env.Stdout, map[string][]control.Path{"paths": paths})
	}
	printPaths(env.Stdout, paths)
	return nil
}

func printPaths(w io.Writer, paths []control.Path) {
	if len(paths) == 0 {
		fmt.Fprintln(w, "nothing was measured yet: no flow of a rule has been seen")
		return
	}
	t := table{
		header: []string{"PATH", "PEER", "FLOWS", "SRTT", "MIN RTT", "RETR", "RATE", "SENT", "RECEIVED", "IDLE"},
		limit:  []int{25, 12},
	}
	for _, p := range paths {
		t.add(p.Prefix.String(), orDash(p.Peer), fmt.Sprint(p.Flows), micros(p.SRTTMicroseconds), micros(p.MinRTT),
			share(p.Retransmits, p.SegmentsOut), value(p.DeliveredBps > 0, units.FormatRate(float64(p.DeliveredBps)*8)),
			units.FormatSize(p.BytesAcked), units.FormatSize(p.BytesReceived),
			units.FormatDuration(time.Duration(p.IdleSeconds*float64(time.Second))))
		if p.Choice != nil {
			t.note("auto: " + choiceText(*p.Choice))
		}
	}
	t.print(w)
}

func micros(us uint32) string {
	return value(us > 0, units.FormatDuration(time.Duration(us)*time.Microsecond))
}

// share writes part of all as a percentage.
func share(part, all uint64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2g%%", 100*float64(part)/float64(all))
}
