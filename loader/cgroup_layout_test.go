// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// Distributions mount cgroup2 at one of two places: alone, or beside hierarchies of version 1. The loader finds the same
// cgroup in both.
func TestCgroupLayouts(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	for _, layout := range []struct{ name, mount string }{
		{"pure", "/sys/fs/cgroup"},
		{"hybrid", "/sys/fs/cgroup/unified"},
	} {
		t.Run(layout.name, func(t *testing.T) {
			mountCgroups(t, layout.mount)
			led, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"))
			must(t, err)
			defer led.Close()
			rule := policy.Rule{ID: 1, Name: "near", Remote: netip.MustParsePrefix("127.0.0.0/8"), Congestion: "reno"}
			l, err := Load(t.Context(), Options{Cgroup: testenv.Cgroup(), BPFFS: t.TempDir(), Ledger: led, Rules: []policy.Rule{rule}})
			must(t, err)
			defer func() { must(t, l.Close()) }()
			if want := filepath.Join(layout.mount, testenv.Cgroup()); l.cgroup != want {
				t.Errorf("loaded at %s, want %s", l.cgroup, want)
			}
			if got := loopCongestion(t); got != "reno" {
				t.Errorf("a socket of this cgroup has congestion control %q, want that of the rule", got)
			}
		})
	}
}

// mountCgroups has this mount namespace see cgroup2 at one place alone. What is mounted is the one hierarchy that the
// kernel has, so the test's processes stay where they are in it.
func mountCgroups(t *testing.T, at string) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	for unix.Unmount(root, unix.MNT_DETACH) == nil { // with all that lies below
	}
	if at != root {
		must(t, unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"))
		must(t, os.Mkdir(at, 0o755))
		// As on such hosts, something of version 1 comes first. Its place counts, not what it controls.
		must(t, os.Mkdir(filepath.Join(root, "trunkline-test"), 0o755))
		err := unix.Mount("cgroup", filepath.Join(root, "trunkline-test"), "cgroup", 0, "none,name=trunkline-test")
		if err != nil && !errors.Is(err, unix.ENODEV) { // newer kernels may be built without
			t.Fatal(err)
		}
	}
	must(t, unix.Mount("cgroup2", at, "cgroup2", 0, ""))
}

// loopCongestion connects over loopback and returns what the connecting socket has.
func loopCongestion(t *testing.T) string {
	t.Helper()
	ln := listen(t, "127.0.0.1", 0)
	cl := dial(t, unix.AF_INET, "127.0.0.1", portOf(ln))
	must(t, cl.err)
	cc, err := unix.GetsockoptString(cl.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	must(t, err)
	return cc
}
