// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// installHint is the remedy for a missing program.
const installHint = "install what tests in virtual machines need with packaging/vmtest-deps.sh"

// program is a child whose output is read by machine: in the C locale and in a process group of its own, so that what it
// started ends with it.
type program struct {
	dir    string
	env    []string
	stdout io.Writer // nil: what run returns
}

// run runs a program to its end and returns what it printed. The error ends with the last lines that it complained in.
func (p program) run(ctx context.Context, name string, args ...string) (string, error) {
	path, err := lookProgram(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if p.stdout != nil {
		cmd.Stdout = p.stdout
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		text := complaints.String()
		if strings.TrimSpace(text) == "" {
			text = out.String()
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, lastLines(text, 6))
	}
	return out.String(), nil
}

// lookProgram finds a program, also where only root's PATH looks.
func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if _, statErr := os.Stat(filepath.Join(dir, name)); statErr == nil {
			return filepath.Join(dir, name), nil
		}
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not installed; %s", name, installHint)
	}
	return "", err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}
