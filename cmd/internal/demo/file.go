// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// file is what is fetched.
type file struct {
	path string
	size int64
}

// realFiles is where large files lie that are installed anyway. Made-up data would prove nothing about compression.
var realFiles = []string{"/boot/vmlinuz*", "/boot/initrd*", "/usr/lib/modules/*/vmlinuz", "/usr/bin/*", "/usr/lib/gcc/*/*/*",
	"/usr/lib/*-linux-gnu/*.so*", "/usr/lib/llvm-*/*/*", "/usr/local/go/pkg/tool/*/*", "/usr/local/go/bin/*"}

// chooseFile takes the named file. Else it takes the executable if it is large enough for good figures, or the smallest
// real file that is; failing that, the largest there is of at least minFile.
func chooseFile(named, executable string) (file, error) {
	if named != "" {
		path, err := filepath.Abs(named)
		if err != nil {
			return file{}, fmt.Errorf("finding %s: %w", named, err)
		}
		f, err := statFile(path)
		if err == nil && f.size == 0 {
			err = fmt.Errorf("the file %s is empty; name another with --file", named)
		}
		return f, err
	}
	var c choice
	c.consider([]string{executable})
	for _, pattern := range realFiles {
		if c.good.size > 0 && c.good.size < tooLarge {
			return c.good, nil
		}
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return file{}, fmt.Errorf("looking for a file: %w", err)
		}
		c.consider(paths)
	}
	switch {
	case c.good.size > 0:
		return c.good, nil
	case c.best.size >= minFile:
		return c.best, nil
	}
	return file{}, errors.New("no file of at least 10 MB found to fetch; name one with --file")
}

// choice is the smallest file that is large enough for good figures, and the largest that is not.
type choice struct{ good, best file }

func (c *choice) consider(paths []string) {
	for _, p := range paths {
		f, err := statFile(p)
		switch {
		case err != nil:
		case f.size >= goodFile && (c.good.size == 0 || f.size < c.good.size):
			c.good = f
		case f.size < goodFile && f.size > c.best.size:
			c.best = f
		}
	}
}

func statFile(path string) (file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return file{}, fmt.Errorf("the file to fetch: %w", err)
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s is not a regular file; name one with --file", path)
	}
	return file{path, info.Size()}, nil
}

// hashFile gives the SHA-256 of a file's contents.
func hashFile(ctx context.Context, path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, fmt.Errorf("reading back: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		switch {
		case err == io.EOF:
			return [sha256.Size]byte(h.Sum(nil)), nil
		case err != nil:
			return sum, fmt.Errorf("reading back: %w", err)
		case ctx.Err() != nil:
			return sum, ctx.Err()
		}
	}
}
