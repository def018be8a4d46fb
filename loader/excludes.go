// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/policy"
)

// resolveExcludes turns the users and cgroups that rules exclude into the numbers that the kernel knows. A cgroup that
// does not exist excludes nobody for now: services come and go, and their cgroups with them.
func (l *Loader) resolveExcludes(t *policy.Table) (map[bpf.ExcludeKey]uint32, error) {
	out := map[bpf.ExcludeKey]uint32{}
	for _, r := range t.Rules() {
		for _, name := range r.ExcludeUsers {
			uid, err := userID(name)
			if err != nil {
				return nil, fmt.Errorf("%s excludes user %q: %w", r.Label(), name, err)
			}
			out[bpf.ExcludeKey{RuleId: r.ID, Kind: bpf.ExcludeUser, Id: uid}] = 1
		}
		for _, path := range r.ExcludeCgroups {
			id, err := l.cgroupID(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s excludes cgroup %q: %w", r.Label(), path, err)
			}
			out[bpf.ExcludeKey{RuleId: r.ID, Kind: bpf.ExcludeCgroup, Id: id}] = 1
		}
	}
	return out, nil
}

// userID returns the number of a user given by name or number.
func userID(name string) (uint64, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return n, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(u.Uid, 10, 32)
}

// cgroupID returns the kernel's id of a cgroup below the cgroup2 mount, which is its directory's inode number.
func (l *Loader) cgroupID(path string) (uint64, error) {
	root, err := cgroup2Mount("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(filepath.Join(root, filepath.Clean("/"+path)))
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, errors.New("not a cgroup")
	}
	return st.Ino, nil
}
