// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// unpackers print the contents of a compressed module, by the end of its name.
var unpackers = map[string][]string{
	".ko":     {"cat"},
	".ko.xz":  {"xz", "-dc"},
	".ko.zst": {"zstd", "-dcq"},
	".ko.gz":  {"gzip", "-dc"},
}

// prepare decompresses and strips a module into dir, unless that was done before, and returns the file there. Stripping
// takes the signature away, which matters only to a kernel that refuses unsigned modules, and debugging information,
// which would take most of the memory of a small machine.
func prepare(ctx context.Context, file, dir string) (string, error) {
	source, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	unpacker, known := unpackers[strings.TrimPrefix(filepath.Base(file), name)]
	if !known {
		return "", fmt.Errorf("%s is compressed in an unknown way", file)
	}
	into := filepath.Join(dir, name+".ko")
	// The time is the source's, so that a module that was built anew is not mistaken for the old one.
	if done, err := os.Stat(into); err == nil && done.ModTime().Equal(source.ModTime()) {
		return into, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	part, err := os.CreateTemp(dir, name+".*.part") // of its own: other runs may prepare the same module
	if err != nil {
		return "", err
	}
	defer os.Remove(part.Name())
	if err := decompress(ctx, unpacker, file, part); err != nil {
		return "", err
	}
	if _, err := (program{}).run(ctx, "strip", "-g", part.Name()); err != nil {
		return "", err
	}
	if err := os.Chtimes(part.Name(), time.Time{}, source.ModTime()); err != nil {
		return "", err
	}
	return into, os.Rename(part.Name(), into)
}

func decompress(ctx context.Context, unpacker []string, file string, into *os.File) error {
	args := append(append([]string{}, unpacker[1:]...), file)
	_, err := program{stdout: into}.run(ctx, unpacker[0], args...)
	if closeErr := into.Close(); err == nil {
		err = closeErr
	}
	return err
}
