// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// dirName is what a demo's directory is known by: its pid is in it.
var dirName = regexp.MustCompile(`^trunkline-demo-([0-9]+)-[0-9]+$`)

func makeDir() (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("trunkline-demo-%d-", os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("making a directory: %w", err)
	}
	return dir, nil
}

// removeStale removes what demos left that were killed: their agents died with them, but the ledgers know what those had
// changed. It is best effort, since nothing there hinders a new demo.
func removeStale(ctx context.Context, binary string, say *progress) {
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(os.TempDir(), e.Name())
		m := dirName.FindStringSubmatch(e.Name())
		if m == nil || !ours(dir) {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		for _, name := range []string{"a", "b"} {
			path := (&site{dir: filepath.Join(dir, name)}).config()
			if _, err := os.Stat(path); err == nil {
				_ = exec.CommandContext(ctx, binary, "cleanup", "--config", path).Run()
			}
		}
		if os.RemoveAll(dir) == nil {
			say.notef("removed %s, which a killed demo left", dir)
		}
	}
}

// ours is true for a directory of this user's own that nobody else can write to: what anybody could have put into a public
// directory must not be taken for a configuration.
func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o077 == 0 && int(st.Uid) == os.Geteuid()
}
