// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is a file to read.
type source struct {
	path   string
	size   int64 // bytes; 0 if it cannot be known
	inside bool  // it was found in a directory
}

const stdin = "-"

// sources lists what paths stand for: directories for the regular files below them, hidden ones left out, in the order of names.
func sources(paths []string) (list []source, err error) {
	for _, path := range paths {
		if path == stdin {
			list = append(list, source{path: path})
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err // names the path itself
		}
		if !info.IsDir() {
			list = append(list, source{path: path, size: info.Size()})
			continue
		}
		found, err := below(path)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("there is no file in %s", path)
		}
		list = append(list, found...)
	}
	return list, nil
}

func below(dir string) (found []source, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		found = append(found, source{path: path, size: info.Size(), inside: true})
		return nil
	})
	slices.SortFunc(found, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return found, err
}

func (s source) open(in io.Reader) (io.ReadCloser, error) {
	if s.path == stdin {
		return io.NopCloser(in), nil
	}
	return os.Open(s.path)
}

// kind is what a file is.
type kind int

const (
	kindPlain kind = iota
	kindEmpty
	kindPcap   // of libpcap, perhaps compressed by gzip
	kindPcapNG // of Wireshark
)

// counted is a file that tells how much of it has been read.
type counted struct {
	*bufio.Reader
}

func newCounted(r io.Reader, tell func(read int64)) counted {
	return counted{bufio.NewReaderSize(&tellingReader{r: r, tell: tell}, 1<<20)}
}

type tellingReader struct {
	r    io.Reader
	read int64
	tell func(int64)
}

// Read is of io.Reader.
func (t *tellingReader) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.read += int64(n)
	t.tell(t.read)
	return n, err //nolint:wrapcheck // io.EOF has to stay what it is
}

// The first bytes of captures, of either byte order, and with times in us or ns.
var (
	pcapMagics  = [][]byte{{0xd4, 0xc3, 0xb2, 0xa1}, {0xa1, 0xb2, 0xc3, 0xd4}, {0x4d, 0x3c, 0xb2, 0xa1}, {0xa1, 0xb2, 0x3c, 0x4d}}
	pcapNGMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}
	gzipMagic   = []byte{0x1f, 0x8b}
)

// kind looks at how a file begins. One that is called a capture has to be one, unless all are to be plain.
func (c counted) kind(s source, plain bool) (kind, error) {
	head, err := c.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return kindPlain, fmt.Errorf("reading %s: %w", s.path, err)
	}
	name := strings.TrimSuffix(strings.ToLower(s.path), ".gz")
	called := strings.HasSuffix(name, ".pcap") || strings.HasSuffix(name, ".pcapng") || strings.HasSuffix(name, ".cap")
	switch {
	case len(head) == 0:
		return kindEmpty, nil
	case plain:
		return kindPlain, nil
	case slices.ContainsFunc(pcapMagics, func(m []byte) bool { return bytes.Equal(m, head) }):
		return kindPcap, nil
	case bytes.Equal(head, pcapNGMagic):
		return kindPcapNG, nil
	case called && bytes.HasPrefix(head, gzipMagic):
		return kindPcap, nil
	case called:
		return kindPlain, fmt.Errorf("%s is not a capture: it begins neither as pcap nor as pcapng; --plain takes it as any file", s.path)
	}
	return kindPlain, nil
}
