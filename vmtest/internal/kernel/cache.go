// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
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
