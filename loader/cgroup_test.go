// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindCgroup(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "with space", "system.slice"), 0o755); err != nil {
		t.Fatal(err)
	}
	escaped := strings.ReplaceAll(filepath.Join(root, "with space"), " ", `\040`)
	const (
		v1     = "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		hybrid = "29 23 0:25 / MOUNT rw,nosuid shared:5 master:6 - cgroup2 cgroup2 rw,nsdelegate\n"
		part   = "28 23 0:25 /user.slice /somewhere/else rw - cgroup2 cgroup2 rw\n"
	)
	for _, c := range []struct {
		name, mounts, cgroup, want string
		err                        string
	}{
		{"root", v1 + hybrid, "/", "with space", ""},
		{"below", v1 + hybrid, "system.slice", "with space/system.slice", ""},
		{"with slashes", hybrid, "/system.slice/", "with space/system.slice", ""},
		{"the whole before a part", part + hybrid, "/", "with space", ""},
		{"no way out", hybrid, "../../system.slice", "with space/system.slice", ""},
		{"missing", hybrid, "/absent", "", "cgroup /absent does not exist below"},
		{"no cgroup2", v1, "/", "", ErrNoCgroup2.Error()},
		{"nothing", "", "/", "", ErrNoCgroup2.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "mountinfo")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.mounts, "MOUNT", escaped)), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := findCgroup(file, c.cgroup)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one line with %q", err, c.err)
				}
				return
			}
			if err != nil || got != filepath.Join(root, c.want) {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
	if _, err := findCgroup(filepath.Join(root, "absent"), "/"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no mountinfo: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o  Options
		ok bool
	}{
		{Options{}, true},
		{Options{Instance: "demo-a"}, true},
		{Options{Instance: "a/b"}, false},
		{Options{Instance: ".."}, false},
		{Options{DSCP: 63}, true},
		{Options{DSCP: 64}, false},
	} {
		o, err := c.o.withDefaults()
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.o, err)
		}
		if c.ok && (o.Cgroup == "" || o.BPFFS == "" || o.MarkBit == 0 || o.Log == nil || o.Instance == "") {
			t.Errorf("%+v: defaults are missing: %+v", c.o, o)
		}
	}
}
