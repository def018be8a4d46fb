// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the path that packages begin with.
const module = "github.com/trunkline/trunkline/"

// suites are the packages whose tests look at the kernel. The others say nothing of it and run on the host alone.
var suites = []string{"bpf", "cc", "cc/internal/mathtest", "loader", "loader/ledger", "cmd/internal/demo", "proxy", "vmtest/lab", "vmtest"}

// build is what the guest runs, all of it static.
type build struct {
	top       string            // the source tree
	guest     string            // this program
	trunkline string            // bin/trunkline of the tree, where tests look for it
	tests     map[string]string // test binary by suite
}

// buildAll compiles this program and the tests of the suites into dir. bin/trunkline is built by `make`.
func buildAll(ctx context.Context, dir string, which []string, progress io.Writer) (*build, error) {
	top, err := sourceTree()
	if err != nil {
		return nil, err
	}
	b := &build{top: top, trunkline: filepath.Join(top, "bin", "trunkline"), tests: map[string]string{}}
	if _, err := os.Stat(b.trunkline); err != nil {
		return nil, fmt.Errorf("%w; build it with `make build`", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("building tests: %w", err)
	}
	b.guest = filepath.Join(dir, "vmtest")
	if err := goTool(ctx, top, "build", "-trimpath", "-o", b.guest, "./vmtest/run"); err != nil {
		return nil, err
	}
	for _, s := range which {
		fmt.Fprintf(progress, "building the tests of %s\n", s)
		b.tests[s] = filepath.Join(dir, strings.ReplaceAll(s, "/", "-")+".test")
		if err := goTool(ctx, top, "test", "-c", "-o", b.tests[s], "./"+s); err != nil {
			return nil, err
		}
		if _, err := os.Stat(b.tests[s]); err != nil {
			delete(b.tests, s) // a package without tests makes no binary
		}
	}
	return b, nil
}

func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// sourceTree finds the tree by its go.mod, from the working directory upwards.
func sourceTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod in %s or above; run it in the source tree", dir)
		}
	}
}
