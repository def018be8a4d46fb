// SPDX-License-Identifier: Apache-2.0

package pathdb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/internal/testkit"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// record is of path number n, last used some time ago.
func record(n int, ago time.Duration) choice.Record {
	a := netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0})
	return choice.Record{
		Path: choice.Path{Prefix: netip.PrefixFrom(a, 24), Peer: []string{"", "busan"}[n%2]}, Updated: now.Add(-ago),
		Chosen: "tl_illinois", Previous: "tl_cubic", Why: "losses come whatever the queue holds", Class: choice.Random,
		Since: now.Add(-2 * ago), RTTMinUs: uint32(n),
		Results: []choice.Result{{Class: choice.Random, Algorithm: "illinois", GoodputBps: 1e6, Seconds: n, At: now.Add(-ago)}},
	}
}

func records(n int) []choice.Record {
	list := make([]choice.Record, n)
	for i := range list {
		list[i] = record(i, time.Duration(i)*time.Second)
	}
	return list
}

func open(t *testing.T, path string, at time.Time) (*DB, []choice.Record) {
	t.Helper()
	d, found, err := Open(path, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, found
}

// filled makes a file with n records.
func filled(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "paths.db")
	d, found := open(t, path, now)
	if len(found) > 0 {
		t.Fatalf("a new file holds %v", found)
	}
	if err := errors.Join(d.Save(now, records(n)), d.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	path := filled(t, 300)
	d, found := open(t, path, now)
	if !reflect.DeepEqual(found, records(300)) {
		t.Errorf("%d records came back, or other ones; the first: %+v", len(found), found[0])
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// What is not among the records any more goes, what has changed is written.
	less := records(10)
	less[3].Chosen = "bbr"
	if err := errors.Join(d.Save(now, less), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, found = open(t, path, now); !reflect.DeepEqual(found, less) {
		t.Errorf("after another save: %+v", found)
	}
}

// What has not changed is not written: a quiet host's disk may sleep.
func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	path := filled(t, 50)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, found := open(t, path, now)
	if err := d.Save(now, found); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed, %v", err)
	}
}

func TestAgeing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "paths.db")
	d, _ := open(t, path, now)
	list := []choice.Record{record(1, 0), record(2, MaxAge-time.Minute), record(3, MaxAge+time.Minute)}
	if err := errors.Join(d.Save(now, list), d.Close()); err != nil {
		t.Fatal(err)
	}
	d, found := open(t, path, now)
	if len(found) != 2 || found[0].RTTMinUs != 1 || found[1].RTTMinUs != 2 {
		t.Errorf("saved with what is too old: %+v", found)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, found = open(t, path, now.Add(time.Hour)); len(found) != 1 {
		t.Errorf("an hour later: %+v", found)
	}
	if len(list) != 3 || list[2].RTTMinUs != 3 {
		t.Errorf("the caller's records were changed: %+v", list)
	}
}

// The file has a bound, whatever it is given; those used last stay.
func TestBound(t *testing.T) {
	path := filled(t, MaxPaths+500)
	_, found := open(t, path, now)
	if len(found) != MaxPaths || found[0].RTTMinUs != 0 || found[MaxPaths-1].RTTMinUs != MaxPaths-1 {
		t.Errorf("%d records, the last of path %d", len(found), found[len(found)-1].RTTMinUs)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 32<<20 {
		t.Errorf("%v, %v", info.Size(), err)
	}
}

// damages are what may have happened to a file.
var damages = map[string]func([]byte) []byte{
	"text":         func([]byte) []byte { return []byte("these are not paths\n") },
	"pages of it":  func(b []byte) []byte { return bytes.Repeat([]byte("these are not paths\n"), len(b)/20) },
	"zeros":        func(b []byte) []byte { return make([]byte, len(b)) },
	"cut":          func(b []byte) []byte { return b[:len(b)/3] },
	"cut to pages": func(b []byte) []byte { return b[:2*os.Getpagesize()] },
	"cut to one":   func(b []byte) []byte { return b[:os.Getpagesize()] },
	"middle": func(b []byte) []byte {
		copy(b[2*os.Getpagesize():], bytes.Repeat([]byte{0xa5}, len(b)-2*os.Getpagesize()))
		return b
	},
}

// A damaged file is moved aside and a new one begun: never a panic, never an end.
func TestDamage(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := filled(t, 400)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(whole), 0o600); err != nil {
				t.Fatal(err)
			}
			d, found := open(t, path, now)
			if len(found) > 0 || d.Aside() != path+".damaged" {
				t.Errorf("%d records, aside %q", len(found), d.Aside())
			}
			if err := errors.Join(d.Save(now, records(5)), d.Close()); err != nil {
				t.Fatal(err)
			}
			d, found = open(t, path, now)
			if len(found) != 5 || d.Aside() != "" {
				t.Errorf("then %d records, aside %q", len(found), d.Aside())
			}
		})
	}
}

// Damage that shows only later, when a page is read or written, is met there.
func TestDamageWhileOpen(t *testing.T) {
	path := filled(t, 400)
	d, _ := open(t, path, now)
	if err := os.Truncate(path, int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(now, records(7)); err != nil {
		t.Fatal(err)
	}
	if d.Aside() == "" {
		t.Error("nothing was moved aside")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, found := open(t, path, now); len(found) != 7 {
		t.Errorf("%d records", len(found))
	}
}

// Wherever bits are turned, there is a database afterwards, and what comes back of it are records that were in it, or in parts.
func TestTurnedBits(t *testing.T) {
	path := filled(t, 100)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range testkit.Count(60, 10) {
		b := bytes.Clone(whole)
		for range 1 + random.IntN(8) {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, found, err := Open(path, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 100 {
			t.Errorf("%d records of 100", len(found))
		}
		if err := d.Save(now, records(20)); err != nil {
			t.Errorf("saving: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A full disk costs what would have been written, and nothing else; when there is room again, it is written.
func TestFullDisk(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	d, _ := open(t, filepath.Join(dir, "paths.db"), now)
	if err := d.Save(now, records(50)); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	for range 3 {
		if err := d.Save(now, records(3000)); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Save(now, records(60)), d.Close()); err != nil {
		t.Fatal(err)
	}
	d, found := open(t, filepath.Join(dir, "paths.db"), now)
	if len(found) != 60 || d.Aside() != "" {
		t.Errorf("%d records, aside %q", len(found), d.Aside())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A directory in its place cannot be moved out of the way by guessing: it is an error with the place.
func TestUnusable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "paths.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if d, _, err := Open(path, now); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", errors.Join(err, d.Close()))
	}
	held := filled(t, 1)
	holder, _ := open(t, held, now)
	d, _, err := Open(held, now)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("fuser %s", held)) {
		t.Errorf("held: %v", err)
	}
	// What could not be opened is tried again.
	if err := d.Save(now, records(2)); err == nil {
		t.Error("it is held still")
	}
	if err := errors.Join(holder.Close(), d.Save(now, records(2)), d.Close()); err != nil {
		t.Error(err)
	}
}
