// SPDX-License-Identifier: Apache-2.0

// Package kernel provides bootable kernels for tests in virtual machines: Debian's, by the suite they come from, one built
// from Debian's source without BTF, and images of one's own.
//
// All that is fetched or built lies in a cache outside the work tree and is used from there without a network. Nothing is
// installed on the machine, and its package lists and sources stay as they are.
package kernel

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Kernel is a bootable kernel.
type Kernel struct {
	Name        string // as in the matrix: "6.1", "6.12", "7.3", "6.1-nobtf", or the base name of an image
	Release     string // as uname -r says it; "" if not known before boot, which only an image of one's own may be
	Image       string // path of the bzImage
	ModulesRoot string // D such that D/lib/modules/Release exists; "" if everything is built in

	prepared string // directory of decompressed, stripped modules
}

// Newest is the name of whatever kernel Debian's newest backports have. The kernel that Get returns for it is named by its
// major and minor version.
const Newest = "newest"

// NoBTF is the name of the kernel that is built without BTF and MPTCP.
const NoBTF = "6.1-nobtf"

// Default returns the names of the whole matrix in order, the oldest and least able first. Give them to Get: what it
// returns for Newest has another name.
func Default() []string { return []string{NoBTF, "6.1", "6.12", Newest} }

// Get returns the kernel of a name from the cache (CacheDir() if ""), fetching or building it if it is not there. A name
// with a slash is the path of a bzImage. Progress is told in lines, one every few seconds; nil means none.
func Get(ctx context.Context, name, cache string, progress io.Writer) (*Kernel, error) {
	return get(ctx, name, cache, progress, false)
}

// Refresh is Get, but looks first whether there is a newer version than the one in the cache. Without a network it says so
// and returns what the cache has.
func Refresh(ctx context.Context, name, cache string, progress io.Writer) (*Kernel, error) {
	return get(ctx, name, cache, progress, true)
}

func get(ctx context.Context, name, cache string, progress io.Writer, refresh bool) (*Kernel, error) {
	if cache == "" {
		cache = CacheDir()
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return nil, err
	}
	if strings.Contains(name, "/") {
		return own(name, cache)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, l := store{cache}, newLog(progress, name)
	if k := s.current(name); k != nil && !refresh {
		return k, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "locks", name), l)
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", name, err)
	}
	defer unlock()
	cached := s.current(name) // another run may have fetched it meanwhile
	if cached != nil && !refresh {
		return cached, nil
	}
	k, err := s.fetch(ctx, name, l)
	if err == nil {
		return k, nil
	}
	if cached != nil && ctx.Err() == nil {
		l.say("using %s from the cache: %v", cached.Release, err)
		return cached, nil
	}
	return nil, fmt.Errorf("fetching %s: %w; kernels are kept in %s, which %s sets", name, err, cache, CacheVar)
}

// current returns what the cache has for a name, or nil.
func (s store) current(name string) *Kernel {
	k, r := s.load(name)
	if name == NoBTF && r != nil && r.Recipe != recipe() {
		return nil // built by an older configuration
	}
	return k
}

func (s store) fetch(ctx context.Context, name string, l log) (*Kernel, error) {
	if name == NoBTF {
		return s.build(ctx, l)
	}
	return s.debian(ctx, name, l)
}
