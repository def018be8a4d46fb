// SPDX-License-Identifier: Apache-2.0

// Package trunkline_test holds the rules of the house that a machine can check.
package trunkline_test

import (
	"bufio"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sources calls f with every source file that people write.
func sources(t *testing.T, f func(path string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == ".git" || path == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !d.IsDir() && !strings.Contains(path, "_bpfel") {
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func firstLine(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	s.Scan()
	return s.Text()
}

func TestEverySourceNamesItsLicence(t *testing.T) {
	want := map[string]string{
		".go": "// SPDX-License-Identifier: Apache-2.0",
		".c":  "/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */",
		".h":  "/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */",
	}
	sources(t, func(path string) {
		if line, ok := want[filepath.Ext(path)]; ok && firstLine(t, path) != line {
			t.Errorf("%s: the first line is %q, want %q", path, firstLine(t, path), line)
		}
	})
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	sources(t, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.Dir(path)
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		documented[dir] = documented[dir] || f.Doc != nil
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file has a package comment", dir)
		}
	}
}

// Imports point one way, so that the engine can be tested without a kernel and the kernel side without an engine.
func TestImportsPointOneWay(t *testing.T) {
	const module = "github.com/trunkline/trunkline/"
	forbidden := map[string][]string{
		"bpf":    {"loader", "proxy", "cc", "cmd", "vmtest"},
		"cc":     {"loader", "proxy", "cmd", "vmtest"},
		"loader": {"proxy", "cmd"},
		"proxy":  {"loader", "cc", "cmd"},
	}
	sources(t, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		room, _, _ := strings.Cut(filepath.ToSlash(path), "/")
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			target := strings.Trim(imp.Path.Value, `"`)
			for _, other := range forbidden[room] {
				if target == module+other || strings.HasPrefix(target, module+other+"/") {
					t.Errorf("%s imports %s: imports point one way, cmd -> {loader, proxy, cc} -> bpf", path, target)
				}
			}
		}
	})
}
