// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CacheVar names the directory of the cache in the environment.
const CacheVar = "TRUNKLINE_VM_CACHE"

// CacheDir returns the directory of the cache: $TRUNKLINE_VM_CACHE, or trunkline/vm in the user's cache.
func CacheDir() string {
	if dir := os.Getenv(CacheVar); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "trunkline", "vm")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root" // no HOME, as in a bare service: whoever builds kernels there is root
	}
	return filepath.Join(home, ".cache", "trunkline", "vm")
}

// A record tells which tree in the cache a name stands for. Trees are made aside and renamed into place when they are
// whole, and the record is written last, so what a record names is complete.
//
//	kernels/6.12.json                                        the record
//	kernels/6.12.95+deb12-amd64_6.12.95-1~bpo12+1/boot/...   the tree
type record struct {
	Name    string `json:"name"`
	Release string `json:"release"`
	Version string `json:"version"`          // of the package that it comes from
	Tree    string `json:"tree"`             // below kernels
	Modules bool   `json:"modules"`          // false: everything is built in
	Recipe  string `json:"recipe,omitempty"` // what a built kernel was built by
}

// store is the cache of kernels.
type store struct{ dir string }

func (s store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir, "kernels"}, elem...)...)
}

// load returns the kernel of a record, or nil if there is none that is whole.
func (s store) load(name string) (*Kernel, *record) {
	text, err := os.ReadFile(s.path(name + ".json"))
	if err != nil {
		return nil, nil
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil || r.Tree == "" || r.Release == "" {
		return nil, nil
	}
	k := s.kernel(r)
	if k.check() != nil {
		return nil, nil
	}
	return k, &r
}

func (s store) kernel(r record) *Kernel {
	tree := s.path(r.Tree)
	k := &Kernel{
		Name: r.Name, Release: r.Release,
		Image:    filepath.Join(tree, "boot", "vmlinuz-"+r.Release),
		prepared: filepath.Join(tree, "prepared"),
	}
	if r.Modules {
		k.ModulesRoot = tree
	}
	return k
}

// check looks for what a partly deleted cache or a broken package would lack.
func (k *Kernel) check() error {
	release, err := imageRelease(k.Image)
	if err != nil {
		return err
	}
	if release != k.Release {
		return fmt.Errorf("%s is release %s, not %s", k.Image, release, k.Release)
	}
	if k.ModulesRoot != "" {
		_, err = os.Stat(filepath.Join(k.ModulesRoot, "lib", "modules", k.Release, "modules.dep"))
	}
	return err
}

// save moves a whole tree into place, and lets the record's name, and those of aliases, stand for it.
func (s store) save(tree string, r record, aliases ...string) (*Kernel, error) {
	into := s.path(r.Tree)
	if k := s.kernel(r); k.check() != nil {
		if err := errors.Join(os.MkdirAll(s.path(), 0o755), os.RemoveAll(into), os.Rename(tree, into)); err != nil {
			return nil, fmt.Errorf("keeping %s: %w", into, err)
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{r.Name}, aliases...) {
		path := s.path(name + ".json")
		if err := writeWhole(path, append(text, '\n')); err != nil {
			return nil, fmt.Errorf("keeping %s: %w", path, err)
		}
	}
	return s.kernel(r), s.prune(r)
}

// prune removes the trees of a name that are neither current nor the one before it, which another run may still use.
func (s store) prune(current record) error {
	entries, err := os.ReadDir(s.path())
	if err != nil {
		return err
	}
	var older []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != current.Tree && nameOf(e.Name()) == nameOf(current.Tree) {
			older = append(older, e.Name())
		}
	}
	slices.SortFunc(older, func(a, b string) int { return compareVersions(versionOf(b), versionOf(a)) })
	for _, tree := range older[min(1, len(older)):] {
		if err := os.RemoveAll(s.path(tree)); err != nil {
			return fmt.Errorf("removing an old kernel: %w", err)
		}
	}
	return nil
}

// treeName is the directory of a kernel: its release, and the version of its package since Debian keeps a release's name
// over several of those.
func treeName(release, version string) string { return release + "_" + version }

func versionOf(tree string) string {
	_, version, _ := strings.Cut(tree, "_")
	return version
}

// nameOf is the name that a tree's kernel has in the matrix.
func nameOf(tree string) string {
	release, _, _ := strings.Cut(tree, "_")
	if strings.HasSuffix(release, builtSuffix) {
		return NoBTF
	}
	return majorMinor(release)
}

// scratch returns an empty directory for one name's work, which must hold the name's lock. What a run left there that was
// killed goes.
func (s store) scratch(name string) (dir string, remove func(), err error) {
	dir = filepath.Join(s.dir, "tmp", name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", nil, fmt.Errorf("making room in the cache: %w; set %s to a directory that can be written", err, CacheVar)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// writeWhole writes a file such that readers see all of it or what was there before.
func writeWhole(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
