// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/reserve/picture"
)

// plotted is what plot --json prints: what is drawn.
type plotted struct {
	From         time.Time              `json:"from"`
	To           time.Time              `json:"to"`
	Paths        []control.ReservedPath `json:"paths"`
	Reservations []reserve.Reservation  `json:"reservations"`
}

func reservePlotCommand(env Env) *cobra.Command {
	t := target{env: env}
	var asJSON bool
	var from, to, svg string
	var span [2]time.Time
	c := &cobra.Command{
		Use:   "plot",
		Short: "A picture of paths and reservations over time",
		Long: "plot draws each declared path with the reservations on it over time, and how full it is; reservations of end points whose path\n" +
			"nobody has declared stand by themselves. Without --svg it is drawn as text. Without --from and --to it shows what has\n" +
			"not ended, at least a day.",
		Example: "  trunkline reserve plot\n  trunkline reserve plot --svg week.svg --to +7d",
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			for i, text := range []string{from, to} {
				if text == "" {
					continue
				}
				v, err := reserve.ParseTime(text, time.Now(), time.Local)
				if err != nil {
					return fmt.Errorf("--%s %w", [2]string{"from", "to"}[i], err)
				}
				span[i] = v
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := ask(&t, func(c *control.Client) (control.Reservations, error) { return c.Reservations(cmd.Context()) })
			if err != nil {
				return err
			}
			var declared []picture.Declared
			for _, p := range found.Paths {
				declared = append(declared, picture.Declared(p))
			}
			p := picture.New(found.Now, span[0], span[1], found.Reservations, declared)
			if !p.To.After(p.From) {
				return fmt.Errorf("the time from %s to %s is empty; choose a later --to", p.From.Format(time.RFC3339), p.To.Format(time.RFC3339))
			}
			switch {
			case svg != "":
				err = writeSVG(svg, p)
			case !asJSON:
				p.Text(env.Stdout)
			}
			if err == nil && asJSON {
				err = writeJSON(env.Stdout, plotted{p.From, p.To, found.Paths, found.Reservations})
			}
			return err
		},
	}
	c.Flags().StringVar(&from, "from", "", "where it begins, as for reserve add --start")
	c.Flags().StringVar(&to, "to", "", "where it ends")
	c.Flags().StringVar(&svg, "svg", "", "draw it as SVG into this file")
	t.flags(c)
	jsonFlag(c, &asJSON)
	return c
}

func writeSVG(path string, p picture.Picture) error {
	var b bytes.Buffer
	if err := p.SVG(&b); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}
