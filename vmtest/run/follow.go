// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// verdict is a test's last line in the log of its binary.
var verdict = regexp.MustCompile(`^\x16?--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)`)

// follow tells of each test as the guest ends it. The returned function ends it.
func follow(ctx context.Context, kernel, dir string, steps []plan.Step, w io.Writer) func() {
	at := map[string]int64{}
	return everySecond(ctx, func() {
		for _, s := range steps {
			at[s.Name] += newLines(plan.LogPath(dir, s.Name), at[s.Name], func(line string) {
				if m := verdict.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "/") {
					fmt.Fprintf(w, "  %-9s %s %-17s %s (%s)\n", kernel, strings.ToLower(m[1]), s.Name, m[2], m[3])
				}
			})
		}
	})
}

// followBench shows what a bench says as it goes. The returned function ends it.
func followBench(ctx context.Context, path string, w io.Writer) func() {
	at := int64(0)
	return everySecond(ctx, func() {
		at += newLines(path, at, func(line string) { fmt.Fprintln(w, "  "+line) })
	})
}

// everySecond calls f now and then until the returned function is called, and once more then.
func everySecond(ctx context.Context, f func()) func() {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				f()
				return
			case <-time.After(time.Second):
				f()
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// newLines calls f with each whole line of a growing file from an offset on, and returns by how much it went forward.
func newLines(path string, from int64, f func(line string)) int64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0
	}
	b, err := io.ReadAll(file)
	if err != nil {
		return 0
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	for lines := bufio.NewScanner(bytes.NewReader(b[:whole])); lines.Scan(); {
		f(lines.Text())
	}
	return int64(whole)
}
