// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/internal/testkit"
)

// A file in the directory of a system becomes a reservation, what is in force is reported beside it, and without the file it ends;
// a reload is enough to begin with that, and to stop.
func TestDirectorySystem(t *testing.T) {
	h := newHost(t)
	dir := t.TempDir()
	client, stop := h.run(h.write(reservedRules))
	h.write(reservedRules + "  systems: [{name: files, directory: " + dir + ", owner: astro, every: 1s}]\n")
	ctx := context.Background()
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "night.json")
	if err := os.WriteFile(file, []byte(`{"remote": ["192.0.2.0/24"], "rate": "1Gbit", "for": "2h", "rtt": "135ms"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(testkit.Wait(30 * time.Second)); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not yet: " + what)
			}
		}
	}
	until("the reservation is in force", func() bool {
		r, err := client.Reservation(ctx, "files.night")
		return err == nil && r.State == reserve.Active && r.System == "files"
	})
	until("the tuning values are reported", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "report", "night.json"))
		var r reserve.Report
		return err == nil && json.Unmarshal(data, &r) == nil && r.Tuning != nil && r.Tuning.WindowBytes == 16_875_000
	})
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	until("a bad file is a problem", func() bool {
		all, err := client.Reservations(ctx)
		return err == nil && len(all.Systems) == 1 && strings.Contains(strings.Join(all.Problems, " "), "1 of 2 reservations of system files are refused")
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	until("it has ended", func() bool {
		r, err := client.Reservation(ctx, "files.night")
		return err == nil && r.State == reserve.Ended
	})
	h.write(reservedRules)
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	until("the system is no longer followed", func() bool {
		all, err := client.Reservations(ctx)
		return err == nil && len(all.Systems) == 0
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}
