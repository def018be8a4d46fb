// SPDX-License-Identifier: Apache-2.0

package labagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// MakeDir makes a temporary directory for what a program (demo, bench) writes. The owner's pid is in its name, by which
// RemoveStale knows it.
func MakeDir(program string) (string, error) {
	dir, err := os.MkdirTemp("", fmt.Sprintf("trunkline-%s-%d-", program, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("making a directory: %w", err)
	}
	return dir, nil
}

// CopyBinary copies the executable into the directory and returns the copy's path: what starts it many times then starts the
// same each time, also if it is built anew meanwhile, and does not read it from a slow file system again and again.
func CopyBinary(binary, dir string) (string, error) {
	from, err := os.Open(binary)
	if err != nil {
		return "", fmt.Errorf("copying the executable: %w", err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "trunkline"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return "", fmt.Errorf("copying the executable: %w", err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return "", fmt.Errorf("copying the executable: %w", err)
	}
	return to.Name(), nil
}

// RemoveStale removes what runs of a program left that were killed, and returns their directories: their agents died with
// them, but the ledgers know what those had changed. It is best effort, since nothing there hinders a new run.
func RemoveStale(ctx context.Context, program, binary string) (removed []string) {
	name := regexp.MustCompile(`^trunkline-` + regexp.QuoteMeta(program) + `-([0-9]+)-[0-9]+$`)
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		dir := filepath.Join(os.TempDir(), e.Name())
		m := name.FindStringSubmatch(e.Name())
		if m == nil || !ours(dir) {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		configs, _ := filepath.Glob(filepath.Join(dir, "*", ConfigName))
		for _, path := range configs {
			_ = exec.CommandContext(ctx, binary, "cleanup", "--config", path).Run()
		}
		if os.RemoveAll(dir) == nil {
			removed = append(removed, dir)
		}
	}
	return removed
}

// ours is true for a directory of this user's own that nobody else can write to: what anybody could have put into a public
// directory must not be taken for a configuration.
func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o077 == 0 && int(st.Uid) == os.Geteuid()
}
