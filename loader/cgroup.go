// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of Load that say that nothing can run.
var (
	ErrNotPermitted = errors.New("not permitted: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")
	ErrNoCgroup2    = errors.New("no cgroup2 is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup/unified) or boot with systemd.unified_cgroup_hierarchy=1")
)

// checkCapabilities tells early and in one line what would otherwise come out as one refusal after the other.
func checkCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if has(unix.CAP_NET_ADMIN) && (has(unix.CAP_SYS_ADMIN) || has(unix.CAP_BPF) && has(unix.CAP_PERFMON)) {
		return nil
	}
	return ErrNotPermitted
}

// findCgroup returns the full path of a cgroup given below the cgroup2 mount, wherever that is: /sys/fs/cgroup on unified
// hosts, /sys/fs/cgroup/unified on hybrid ones.
func findCgroup(mountinfo, cgroup string) (string, error) {
	root, err := cgroup2Mount(mountinfo)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, filepath.Clean("/"+cgroup))
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !st.IsDir() {
		return "", fmt.Errorf("cgroup %s does not exist below %s; create it or correct `cgroup` in the configuration", cgroup, root)
	}
	if err != nil {
		return "", fmt.Errorf("looking for cgroup %s: %w", cgroup, err)
	}
	return path, nil
}

// cgroup2Mount returns where the whole cgroup2 hierarchy is mounted. A bind mount of a part of it (root field other than
// "/") serves only if there is no better one.
func cgroup2Mount(mountinfo string) (string, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", fmt.Errorf("reading mounts: %w", err)
	}
	defer f.Close()
	part := ""
	s := bufio.NewScanner(f)
	for s.Scan() {
		// 36 35 98:0 /root /mount/point options [optional fields] - type source super-options
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		point := unescapeMount(fields[4])
		if fields[3] == "/" {
			return point, nil
		}
		if part == "" {
			part = point
		}
	}
	if err := s.Err(); err != nil {
		return "", fmt.Errorf("reading mounts: %w", err)
	}
	if part == "" {
		return "", ErrNoCgroup2
	}
	return part, nil
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
