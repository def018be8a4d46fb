// SPDX-License-Identifier: Apache-2.0

// Package testenv gives a test a cgroup and network namespaces of its own, so that nothing is attached to the host's.
package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

const envCgroup = "TL_TEST_CGROUP"

// Isolated runs the test again in a process of its own, in a new cgroup and new network and mount namespaces, loopback up.
// It returns true in that process, and false in the one that go test started, where nothing is left to do:
//
//	if !testenv.Isolated(t) {
//		return
//	}
func Isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envCgroup) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatalf("setting the loopback up: %v", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatalf("keeping mounts to this namespace: %v", err)
		}
		return true
	}
	testkit.NeedRoot(t)
	mount := Mount(t)
	dir, err := os.MkdirTemp(mount, "tl-test-")
	if err != nil {
		t.Fatalf("creating a cgroup: %v", err)
	}
	defer removeCgroup(t, dir)
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+testkit.Wait(2*time.Minute).String())
	cmd.Env = append(os.Environ(), envCgroup+"=/"+filepath.Base(dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UseCgroupFD: true,
		CgroupFD:    int(group.Fd()),
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", bytes.TrimSpace(out))
	if err != nil {
		t.Errorf("in the test's own process: %v", err)
	}
	SkipAs(t, out)
	return false
}

// SkipAs skips a test that ran in a process of its own as that process did, if it did as a whole: subtests that were
// skipped there are in its output.
func SkipAs(t *testing.T, out []byte) {
	t.Helper()
	whole := []byte("\n--- SKIP: " + t.Name() + " ")
	if !bytes.Contains(append([]byte("\n"), out...), whole) {
		return
	}
	if _, why, ok := bytes.Cut(out, []byte(testkit.SkipPrefix)); ok {
		why, _, _ = bytes.Cut(why, []byte("\n"))
		t.Skipf("%s%s", testkit.SkipPrefix, why)
	}
	t.Skip("skipped in the test's own process")
}

// Cgroup returns the test's own cgroup, below the cgroup2 mount.
func Cgroup() string { return os.Getenv(envCgroup) }

// Mount returns where cgroup2 is mounted.
func Mount(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	t.Fatal("no cgroup2 is mounted: mount -t cgroup2 none /sys/fs/cgroup")
	return ""
}

// SubCgroup creates a cgroup below the test's own and returns its path below the mount and its directory.
func SubCgroup(t *testing.T, name string) (path, dir string) {
	t.Helper()
	path = filepath.Join(Cgroup(), name)
	dir = filepath.Join(Mount(t), path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	return path, dir
}

// removeCgroup waits until the last process is out: that takes a moment after its end.
func removeCgroup(t *testing.T, dir string) {
	var err error
	for end := time.Now().Add(testkit.Wait(2 * time.Second)); time.Now().Before(end); {
		if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("removing the cgroup: %v", fmt.Errorf("%s: %w", dir, err))
}
