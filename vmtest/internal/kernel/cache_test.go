// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wholeTree makes what an unpacked package looks like.
func wholeTree(t *testing.T, dir, release string) string {
	t.Helper()
	write(t, filepath.Join(dir, "boot", "vmlinuz-"+release), bzImage(release+" x\x00"))
	write(t, filepath.Join(dir, "lib", "modules", release, "modules.dep"), nil)
	return dir
}

func keep(t *testing.T, s store, r record, aliases ...string) *Kernel {
	t.Helper()
	r.Modules, r.Tree = true, treeName(r.Release, r.Version)
	k, err := s.save(wholeTree(t, filepath.Join(s.dir, "made"), r.Release), r, aliases...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// noPrograms makes sure that a test neither runs apt nor has a network.
func noPrograms(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", "")
}

func TestCachedKernelIsUsedAtOnce(t *testing.T) {
	noPrograms(t)
	s := store{t.TempDir()}
	want := keep(t, s, record{Name: "7.3", Release: "7.3.4+deb13-amd64", Version: "7.3.4-1~bpo13+1"}, Newest)
	for _, name := range []string{"7.3", Newest} {
		var told strings.Builder
		got, err := Get(t.Context(), name, s.dir, &told)
		if err != nil || *got != *want || told.Len() > 0 {
			t.Errorf("%s: got %+v, %v, %q; want %+v", name, got, err, told.String(), want)
		}
	}
	if exists(filepath.Join(s.dir, "made")) {
		t.Error("the tree was copied, not moved")
	}
}

func TestRefreshWithoutNetworkSaysThatItUsesTheCache(t *testing.T) {
	noPrograms(t)
	s := store{t.TempDir()}
	want := keep(t, s, record{Name: "6.1", Release: "6.1.0-57-amd64", Version: "6.1.192-3"})
	var told strings.Builder
	got, err := Refresh(t.Context(), "6.1", s.dir, &told)
	if err != nil || *got != *want || !strings.Contains(told.String(), "using 6.1.0-57-amd64 from the cache") {
		t.Errorf("got %+v, %v, %q", got, err, told.String())
	}
}

func TestIncompleteCacheIsNotUsed(t *testing.T) {
	noPrograms(t)
	const release = "6.1.0-57-amd64"
	for name, spoil := range map[string]func(s store, k *Kernel) error{
		"no record":     func(s store, k *Kernel) error { return os.Remove(s.path("6.1.json")) },
		"broken record": func(s store, k *Kernel) error { return os.WriteFile(s.path("6.1.json"), []byte(`{"name":`), 0o644) },
		"empty record":  func(s store, k *Kernel) error { return os.WriteFile(s.path("6.1.json"), []byte(`{}`), 0o644) },
		"no image":      func(s store, k *Kernel) error { return os.Remove(k.Image) },
		"short image":   func(s store, k *Kernel) error { return os.Truncate(k.Image, 100) },
		"other image":   func(s store, k *Kernel) error { return os.WriteFile(k.Image, bzImage("6.1.0-50-amd64\x00"), 0o644) },
		"no modules":    func(s store, k *Kernel) error { return os.RemoveAll(filepath.Join(k.ModulesRoot, "lib")) },
	} {
		s := store{t.TempDir()}
		k := keep(t, s, record{Name: "6.1", Release: release, Version: "6.1.192-3"})
		if err := spoil(s, k); err != nil {
			t.Fatal(err)
		}
		got, err := Get(t.Context(), "6.1", s.dir, nil)
		if err == nil || !strings.Contains(err.Error(), "fetching 6.1: ") || !strings.Contains(err.Error(), s.dir) ||
			!strings.Contains(err.Error(), CacheVar) {
			t.Errorf("%s: got %+v, %v; want an error that names kernel, cache and remedy", name, got, err)
		}
	}
}

func TestKilledRunLeavesNothingThatCounts(t *testing.T) {
	noPrograms(t)
	s := store{t.TempDir()}
	dir, _, err := s.scratch("6.1") // and never removed
	if err != nil {
		t.Fatal(err)
	}
	wholeTree(t, filepath.Join(dir, "tree"), "6.1.0-57-amd64")
	if k, _ := s.load("6.1"); k != nil {
		t.Fatalf("got %+v of a tree that was never kept", k)
	}
	dir, remove, err := s.scratch("6.1")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if exists(filepath.Join(dir, "tree")) {
		t.Error("a new run starts on what a killed one left")
	}
}

func TestOldKernelsGoButTheOneBefore(t *testing.T) {
	s := store{t.TempDir()}
	other := keep(t, s, record{Name: "6.12", Release: "6.12.9-amd64", Version: "6.12.9-1"})
	first := keep(t, s, record{Name: "6.1", Release: "6.1.0-9-amd64", Version: "6.1.9-1"})
	second := keep(t, s, record{Name: "6.1", Release: "6.1.0-10-amd64", Version: "6.1.100-1"})
	third := keep(t, s, record{Name: "6.1", Release: "6.1.0-11-amd64", Version: "6.1.101-1"})
	for k, want := range map[*Kernel]bool{first: false, second: true, third: true, other: true} {
		if exists(k.Image) != want {
			t.Errorf("%s: still there is %v, want %v", k.Image, !want, want)
		}
	}
	if got, _ := s.load("6.1"); got == nil || got.Release != third.Release {
		t.Errorf("the name stands for %+v", got)
	}
}

func TestBuiltKernelOfAnotherConfigurationIsNotUsed(t *testing.T) {
	s := store{t.TempDir()}
	r := record{Name: NoBTF, Release: "6.1.192-nobtf", Version: "6.1.192-3", Recipe: "other"}
	keep(t, s, r)
	if k := s.current(NoBTF); k != nil {
		t.Errorf("got %+v", k)
	}
	r.Recipe = recipe()
	keep(t, s, r)
	if k := s.current(NoBTF); k == nil {
		t.Error("got nothing")
	}
}

func TestCacheDirComesFromTheEnvironment(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv(CacheVar, "")
	if got := CacheDir(); got != "/home/u/.cache/trunkline/vm" {
		t.Errorf("got %s", got)
	}
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	if got := CacheDir(); got != "/xdg/trunkline/vm" {
		t.Errorf("got %s", got)
	}
	t.Setenv(CacheVar, "/own")
	if got := CacheDir(); got != "/own" {
		t.Errorf("got %s", got)
	}
}

func TestSecondRunWaitsForTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "6.1")
	unlock, err := lockFile(t.Context(), path, newLog(nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockFile(short, path, newLog(nil, "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second run got %v", err)
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := lockFile(t.Context(), path, newLog(nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	again()
}
