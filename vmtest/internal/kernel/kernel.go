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
	return nil, fmt.Errorf("getting %s: not there yet", strings.TrimSpace(name))
}
