// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func record(t *testing.T, l *Ledger, e Entry) uint64 {
	t.Helper()
	id, err := l.Record(e)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func outcomes(t *testing.T, l *Ledger, want ...Outcome) []Result {
	t.Helper()
	results, err := l.Undo(quiet)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d: %+v", len(results), len(want), results)
	}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Errorf("%s %s: %s (%s), want %s", r.Entry.Kind, r.Entry.Target, r.Outcome, r.Detail, want[i])
		}
	}
	return results
}

func TestUndoInReverseOrder(t *testing.T) {
	dir := t.TempDir()
	l := open(t, filepath.Join(dir, "state", "ledger.db"))
	sub, file := filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "file")
	record(t, l, Entry{Kind: Dir, Target: sub})
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	record(t, l, Entry{Kind: File, Target: file})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	record(t, l, Entry{Kind: Pin, Target: filepath.Join(dir, "never-made")})

	// The directory is empty only once the file is gone.
	outcomes(t, l, Already, Restored, Restored)
	if _, err := os.Stat(sub); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	outcomes(t, l) // nothing is undone twice
}

func TestDirectoryWithOthersFilesStays(t *testing.T) {
	dir := t.TempDir()
	l := open(t, filepath.Join(dir, "ledger.db"))
	sub := filepath.Join(dir, "sub")
	record(t, l, Entry{Kind: Dir, Target: sub})
	if err := os.MkdirAll(filepath.Join(sub, "others"), 0o700); err != nil {
		t.Fatal(err)
	}
	outcomes(t, l, Left)
	if _, err := os.Stat(filepath.Join(sub, "others")); err != nil {
		t.Error(err)
	}
}

// aSysctl is one of this namespace whose value may be any number.
const aSysctl = "net.ipv4.ip_unprivileged_port_start"

// inNamespace runs the test again in a network namespace of its own, and is true there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TL_LEDGER_CHILD") != "" {
		return true
	}
	testkit.NeedRoot(t)
	cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TL_LEDGER_CHILD=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func TestSysctl(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, c := range []struct {
		name      string
		afterward string // set by someone else; "": nobody
		want      Outcome
		value     string
	}{
		{"restored", "", Restored, "1024"},
		{"changed by someone else", "700", Left, "700"},
		{"put back by someone else", "1024", Already, "1024"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := WriteSysctl(aSysctl, "1024"); err != nil {
				t.Fatal(err)
			}
			l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
			if id, err := l.SetSysctl(aSysctl, "1024"); err != nil || id != 0 {
				t.Errorf("setting the same value: entry %d, %v; want none", id, err)
			}
			if _, err := l.SetSysctl(aSysctl, "500"); err != nil {
				t.Fatal(err)
			}
			if c.afterward != "" {
				if err := WriteSysctl(aSysctl, c.afterward); err != nil {
					t.Fatal(err)
				}
			}
			outcomes(t, l, c.want)
			if v, err := ReadSysctl(aSysctl); err != nil || v != c.value {
				t.Errorf("the value is %q, %v; want %q", v, err, c.value)
			}
			outcomes(t, l)
		})
	}
}

// Several ledgers change one sysctl, one after the other: whichever ends last leaves the value that there was before the first.
func TestSysctlOfSeveralLedgers(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for name, ends := range map[string][]int{"first ends first": {0, 1, 2}, "last ends first": {2, 1, 0}, "mixed": {1, 0, 2}, "mixed otherwise": {0, 2, 1}} {
		t.Run(name, func(t *testing.T) {
			handoverDir = filepath.Join(t.TempDir(), "sysctl")
			if err := WriteSysctl(aSysctl, "1024"); err != nil {
				t.Fatal(err)
			}
			var all []*Ledger
			for _, v := range []string{"1100", "1200", "1300"} {
				l := open(t, filepath.Join(t.TempDir(), v+".db"))
				if _, err := l.SetSysctl(aSysctl, v); err != nil {
					t.Fatal(err)
				}
				all = append(all, l)
			}
			for _, i := range ends {
				if _, err := all[i].Undo(quiet); err != nil {
					t.Fatal(err)
				}
			}
			if v, err := ReadSysctl(aSysctl); err != nil || v != "1024" {
				t.Errorf("the value is %q, %v; want what it was before the first", v, err)
			}
			if _, err := os.Stat(handoverDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something is left where sysctls are handed over: %v", err)
			}
			// An administrator's own value of later is not taken for one of them.
			if err := WriteSysctl(aSysctl, "1100"); err != nil {
				t.Fatal(err)
			}
			if _, err := all[2].SetSysctl(aSysctl, "1400"); err != nil {
				t.Fatal(err)
			}
			outcomes(t, all[2], Restored)
			if v, err := ReadSysctl(aSysctl); err != nil || v != "1100" {
				t.Errorf("the value is %q, %v; want the administrator's", v, err)
			}
		})
	}
}

func TestFailedSysctlLeavesNoEntry(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	if _, err := l.SetSysctl("net.ipv4.tcp_congestion_control", "no such algorithm"); err == nil {
		t.Fatal("it was accepted")
	}
	if _, err := l.SetSysctl("net.no.such.name", "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unknown sysctl: %v", err)
	}
	if e, err := l.Entries(); err != nil || len(e) != 0 {
		t.Errorf("entries %v, %v; want none", e, err)
	}
}

func TestUnknownKindStays(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	record(t, l, Entry{Kind: "qdisc", Target: "eth0"})
	if r, err := l.Undo(quiet); err == nil || len(r) != 1 || r[0].Outcome != Failed {
		t.Errorf("results %+v, error %v; want a failure", r, err)
	}
	if e, _ := l.Entries(); len(e) != 1 {
		t.Errorf("entries %v; the failed one must stay", e)
	}
}

func TestUndoOnly(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	one := record(t, l, Entry{Kind: File, Target: "/nonexistent/one"})
	two := record(t, l, Entry{Kind: File, Target: "/nonexistent/two"})
	if r, err := l.UndoOnly(quiet, one); err != nil || len(r) != 1 || r[0].Entry.ID != one {
		t.Errorf("results %+v, %v", r, err)
	}
	e, err := l.Entries()
	if err != nil || len(e) != 1 || e[0].ID != two || e[0].Time.IsZero() {
		t.Errorf("entries %+v, %v; want the second alone", e, err)
	}
}

func TestInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	open(t, path)
	start := time.Now()
	if _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("the second Open: %v, want ErrInUse", err)
	}
	if d := time.Since(start); d > 3*openTimeout {
		t.Errorf("it took %v", d)
	}
}

// The child records an entry, makes the change and is killed; the parent undoes it.
func TestSurvivesKill(t *testing.T) {
	if dir := os.Getenv("TL_LEDGER_KILL"); dir != "" {
		l := open(t, filepath.Join(dir, "ledger.db"))
		file := filepath.Join(dir, "file")
		record(t, l, Entry{Kind: File, Target: file})
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(testkit.Wait(time.Minute))
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "TL_LEDGER_KILL="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	for end := time.Now().Add(testkit.Wait(10 * time.Second)); time.Now().Before(end); {
		if _, err := os.Stat(file); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	l := open(t, filepath.Join(dir, "ledger.db"))
	outcomes(t, l, Restored)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
