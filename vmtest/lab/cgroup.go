// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a cgroup2 directory that the lab made.
type cgroup struct {
	dir   string // absolute
	below string // the same below the cgroup2 mount, starting with /
}

// labName is what leftovers are known by: the owner's pid is in it.
var labName = regexp.MustCompile(`^trunkline-lab-([0-9]+)-[0-9]+$`)

// cgroupMount finds where cgroup2 is mounted, on hybrid hosts too.
func cgroupMount() (string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("finding cgroup2: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		mount, fs, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if ok && strings.HasPrefix(fs, "cgroup2 ") && len(fields) >= 5 {
			return fields[4], nil
		}
	}
	return "", errors.New("cgroup2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")
}

// newLabCgroup removes what dead owners left and makes a cgroup that carries this process's pid.
func newLabCgroup(parent string) (*cgroup, error) {
	mount, err := cgroupMount()
	if err != nil {
		return nil, err
	}
	below := filepath.Join("/", parent)
	removeStale(filepath.Join(mount, below))
	for n := 0; ; n++ {
		name := fmt.Sprintf("trunkline-lab-%d-%d", os.Getpid(), n)
		c := &cgroup{dir: filepath.Join(mount, below, name), below: filepath.Join(below, name)}
		switch err := os.Mkdir(c.dir, 0o755); {
		case err == nil:
			return c, nil
		case !errors.Is(err, os.ErrExist):
			return nil, fmt.Errorf("making the lab's cgroup: %w", err)
		}
	}
}

func (c *cgroup) child(name string) (*cgroup, error) {
	k := &cgroup{dir: filepath.Join(c.dir, name), below: filepath.Join(c.below, name)}
	if err := os.Mkdir(k.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a cgroup: %w", err)
	}
	return k, nil
}

// removeStale is best effort: what it cannot remove is no hindrance to a new lab.
func removeStale(parent string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		m := labName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		c := &cgroup{dir: filepath.Join(parent, e.Name())}
		if c.killAll() == nil {
			_ = c.remove()
		}
	}
}

// killAll kills every process in the cgroup and below, and waits until none is left.
func (c *cgroup) killAll() error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		pids := c.pids()
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v in %s do not die", pids, c.dir)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pids lists the processes in the cgroup and below. Zombies are not listed by the kernel.
func (c *cgroup) pids() []int {
	var pids []int
	_ = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for _, f := range strings.Fields(string(b)) {
			// 0 stands for a process outside our pid namespace.
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// remove deletes the cgroup and those below it, deepest first.
func (c *cgroup) remove() error {
	var dirs []string
	_ = filepath.WalkDir(c.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	var errs []error
	for i := len(dirs) - 1; i >= 0; i-- {
		errs = append(errs, removeDir(dirs[i]))
	}
	return errors.Join(errs...)
}

// removeDir retries for a while: a cgroup stays busy for some milliseconds after its last process was reaped.
func removeDir(dir string) error {
	for deadline := time.Now().Add(5 * time.Second); ; {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return fmt.Errorf("removing cgroup %s: %w", dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
