// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is one file of a corpus.
type file struct {
	name  string
	data  []byte
	cutAt int64 // whole size in bytes if only the beginning is used, else 0
}

// corpus says where files come from.
type corpus struct {
	dir   string // empty: files are generated
	least int64  // bytes; smaller files are left out: what a frame costs would be all that they show
	most  int64  // bytes; of larger files the beginning is used
	total int64  // bytes; 0: no limit. Divided evenly.
	seed  uint64
}

// load reads or generates the files, in the order of their names, and tells what was left out.
func (c corpus) load() (files []file, notes []string, err error) {
	if c.dir == "" {
		n := c.most
		if c.total > 0 {
			n = min(n, c.total/int64(len(kinds)))
		}
		return generate(int(min(n, generatedBytes)), c.seed), nil, nil
	}
	paths, small, err := c.list()
	if err != nil {
		return nil, nil, err
	}
	if len(paths) == 0 {
		return nil, nil, fmt.Errorf("--dir %s: no file in it has %d bytes or more; name another directory, or give --least", c.dir, c.least)
	}
	if small > 0 {
		notes = append(notes, fmt.Sprintf("files below %d bytes left out (--least): %d", c.least, small))
	}
	most := c.most
	if c.total > 0 {
		most = min(most, max(c.total/int64(len(paths)), c.least))
	}
	for _, path := range paths {
		f, err := readFile(c.dir, path, most)
		if err != nil {
			return nil, nil, err
		}
		if f.cutAt > 0 {
			notes = append(notes, fmt.Sprintf("of %s the first %d of %d bytes", f.name, len(f.data), f.cutAt))
		}
		files = append(files, f)
	}
	return files, notes, nil
}

// list finds the regular files below the directory, without hidden ones, and counts those that are too small.
func (c corpus) list() (paths []string, small int, err error) {
	err = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != c.dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() < max(c.least, 1) {
			small++
			return nil
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("--dir %s: %w", c.dir, err)
	}
	slices.Sort(paths)
	return paths, small, nil
}

func readFile(dir, path string, most int64) (_ file, err error) {
	name, err := filepath.Rel(dir, path)
	if err != nil || name == "." {
		name = filepath.Base(path)
	}
	in, err := os.Open(path)
	if err != nil {
		return file{}, fmt.Errorf("--dir %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return file{}, fmt.Errorf("--dir %s: %w", dir, err)
	}
	f := file{name: name, data: make([]byte, min(info.Size(), most))}
	if _, err := io.ReadFull(in, f.data); err != nil {
		return file{}, fmt.Errorf("--dir %s: reading %s: %w", dir, name, err)
	}
	if info.Size() > most {
		f.cutAt = info.Size()
	}
	return f, nil
}

// textLike returns the file that records are cut from: one of logs, or that with the most printable characters.
func textLike(files []file) file {
	return slices.MaxFunc(files, func(a, b file) int { return cmp.Compare(printable(a), printable(b)) })
}

func printable(f file) float64 {
	if strings.Contains(f.name, "logs") {
		return 2
	}
	head := f.data[:min(len(f.data), 64<<10)]
	n := 0
	for _, b := range head {
		if b >= ' ' && b < 0x7f || b == '\n' || b == '\t' {
			n++
		}
	}
	return float64(n) / float64(max(len(head), 1))
}
