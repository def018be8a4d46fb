// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

func mountBPFFS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatalf("mounting a bpffs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// withLedger loads an instance whose ledger lies in state.
func withLedger(t *testing.T, bpffs, state, instance string) (*Loader, *ledger.Ledger) {
	t.Helper()
	led, err := ledger.Open(LedgerPath(state, instance))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { led.Close() })
	l, err := Load(t.Context(), Options{Instance: instance, Cgroup: testenv.Cgroup(), BPFFS: bpffs, Ledger: led,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, led
}

func pinsFeature(t *testing.T, l *Loader) Feature {
	t.Helper()
	fs := l.Features()
	i := slices.IndexFunc(fs, func(f Feature) bool { return f.Name == "pins" })
	if i < 0 {
		t.Fatalf("no feature pins in %+v", fs)
	}
	return fs[i]
}

func TestPins(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	bpffs, state := mountBPFFS(t), t.TempDir()
	one, led := withLedger(t, bpffs, state, "one")
	two, _ := withLedger(t, bpffs, state, "two")
	if f := pinsFeature(t, one); !f.On {
		t.Fatalf("pins are off: %+v", f)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(bpffs, "trunkline", "one", "tl_flow"), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if names := dirNames(t, filepath.Join(bpffs, "trunkline")); !slices.Equal(names, []string{"two"}) {
		t.Errorf("left beside the other instance: %v", names)
	}
	if e, err := led.Entries(); err != nil || len(e) != 0 {
		t.Errorf("left in the ledger: %+v, %v", e, err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	if names := dirNames(t, bpffs); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
}

// dirNames lists a directory, without what the kernel itself puts into a bpffs.
func dirNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range es {
		if !strings.HasSuffix(e.Name(), ".debug") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestPinsAreOff(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	l, _ := withLedger(t, t.TempDir(), t.TempDir(), "plain")
	if f := pinsFeature(t, l); f.On || !strings.Contains(f.Remedy, "mount -t bpf") {
		t.Errorf("without bpffs: %+v", f)
	}
}

// An agent was killed: its pins stay. Cleanup takes them, and so does the next start.
func TestCleanupAfterKill(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	bpffs, state := mountBPFFS(t), t.TempDir()
	killed := func() {
		l, led := withLedger(t, bpffs, state, "one")
		if _, err := Cleanup(t.Context(), state, "one", l.log); !errors.Is(err, ledger.ErrInUse) || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("while the agent runs: %v", err)
		}
		led.Close() // what is closed without the loader stays, as after kill -9
	}
	killed()
	results, err := Cleanup(t.Context(), state, "one", slog.New(slog.DiscardHandler))
	if err != nil || len(results) != len(pinnedMaps)+2 {
		t.Errorf("%d results, %v; want %d", len(results), err, len(pinnedMaps)+2)
	}
	for _, r := range results {
		if r.Outcome != ledger.Restored {
			t.Errorf("%s %s: %s %s", r.Entry.Kind, r.Entry.Target, r.Outcome, r.Detail)
		}
	}
	if names := dirNames(t, bpffs); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if results, err := Cleanup(t.Context(), state, "one", slog.New(slog.DiscardHandler)); err != nil || len(results) != 0 {
		t.Errorf("again: %v, %v", results, err)
	}
	if results, err := Cleanup(t.Context(), state, "absent", slog.New(slog.DiscardHandler)); err != nil || len(results) != 0 {
		t.Errorf("an instance that never was: %v, %v", results, err)
	}

	killed()
	l, led := withLedger(t, bpffs, state, "one")
	if f := pinsFeature(t, l); !f.On {
		t.Errorf("after a kill pins are off: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err := led.Entries(); err != nil || len(e) != 0 {
		t.Errorf("left in the ledger: %+v, %v", e, err)
	}
}
