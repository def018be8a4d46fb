// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/cmd/internal/statedb"
)

// bookAgent serves the control socket of the script's configuration as an agent does, but of reservations alone: it needs neither
// root nor a kernel. The state survives from one run to the next.
func bookAgent() {
	if err := runBookAgent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runBookAgent() error {
	work := os.Getenv("WORK")
	c, err := config.Load(filepath.Join(work, "agent.yaml"))
	if err != nil {
		return err
	}
	db, records, err := statedb.Open(filepath.Join(work, "state", "reservations.db"), "reservations")
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := reserve.NewBook(reserve.SystemClock(), db, c.Reservations.Policy, records)
	if err != nil {
		return err
	}
	l, err := control.Listen(filepath.Join(work, "run", "default", "control.sock"), "")
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return control.Serve(ctx, l, bookBackend{Book: b}, slog.New(slog.DiscardHandler))
}

// bookBackend answers of reservations; the rest of it is nil.
type bookBackend struct {
	control.Backend
	*reserve.Book
}

func (b bookBackend) Reservations() (control.Reservations, error) {
	if _, err := b.Tick(); err != nil {
		return control.Reservations{}, err
	}
	all := control.Reservations{Now: time.Now().UTC(), Reservations: b.List(), Problems: []string{}}
	for _, p := range b.Policy().Paths {
		all.Paths = append(all.Paths, control.ReservedPath{Name: p.Name, Remote: p.Remote, CapacityBps: p.CapacityBps})
	}
	return all, nil
}
func (b bookBackend) Reservation(id string) (reserve.Reservation, error) { return b.Get(id) }
func (b bookBackend) Reserve(q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return b.Add(q, by)
}
func (b bookBackend) ChangeReservation(id string, q reserve.Request, by reserve.Caller) (reserve.Reservation, error) {
	return b.Change(id, q, by)
}
func (b bookBackend) EndReservation(id string, by reserve.Caller) (reserve.Reservation, error) {
	return b.End(id, by)
}

// What a connection makes of a reservation is told in words and within the page.
func TestPrintReservation(t *testing.T) {
	var w strings.Builder
	now := time.Now()
	tuning := reserve.TuningFor(125e6, 135*time.Millisecond)
	r := reserve.Reservation{ID: "r1", Owner: "astro", RateBps: 125e6, Share: 1, Start: now, End: now.Add(time.Hour), State: reserve.Active, Tuning: &tuning,
		EndPoints: []reserve.EndPoint{{RTTus: 135000, Count: 3, Source: "probe"}},
		Use:       reserve.Use{Flows: 2, GoodputBps: 113e6, PeakBps: 119e6, PerFlow: make([]reserve.FlowUse, 25)}}
	printReservation(&w, r)
	for _, want := range []string{"904 Mbit/s (90 %) sent", "of 1 Gbit/s reserved, peak 952 Mbit/s (95 %)", "window 16.1 MiB (16875000 bytes, 11655 segments at 1500)", "and 5 more", "measured 3 times since"} {
		if !strings.Contains(strings.Join(strings.Fields(w.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, w.String())
		}
	}
	for line := range strings.SplitSeq(w.String(), "\n") {
		if len([]rune(line)) > pageWidth {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
}
