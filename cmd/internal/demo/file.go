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

// chooseFile takes the named file, or the executable if it is large enough, or the largest kernel or library found:
// a real file, since made-up data would prove nothing about compression.
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
	if f, err := statFile(executable); err == nil && f.size >= minFile {
		return f, nil
	}
	var best file
	for _, pattern := range []string{"/boot/vmlinuz-*", "/boot/initrd*", "/usr/lib/modules/*/vmlinuz", "/usr/bin/*", "/usr/lib/*-linux-gnu/*.so*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return file{}, fmt.Errorf("looking for a file: %w", err)
		}
		for _, p := range paths {
			if f, err := statFile(p); err == nil && f.size > best.size && f.size < 64e6 {
				best = f
			}
		}
		if best.size >= minFile {
			return best, nil
		}
	}
	return file{}, errors.New("no file of at least 10 MB found to fetch; name one with --file")
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
