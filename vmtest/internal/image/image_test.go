// SPDX-License-Identifier: Apache-2.0

package image

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
)

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out := filepath.Join(dir, "initramfs.gz")
	if err := Build(out, file("program", "static"), []string{file("b.ko", "B"), file("a.ko", "A")}); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got, modes := map[string]string{}, map[string]cpio.FileMode{}
	for r := cpio.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name], modes[h.Name] = string(body), h.Mode
	}
	for name, body := range map[string]string{"init": "static", "modules/b.ko": "B", "modules/a.ko": "A", "modules/order": "b.ko\na.ko\n"} {
		if got[name] != body {
			t.Errorf("%s holds %q, want %q", name, got[name], body)
		}
	}
	if modes["init"].Perm() != 0o755 || !modes["proc"].IsDir() {
		t.Errorf("modes %v", modes)
	}
}

func TestBuildLeavesNothingHalfDone(t *testing.T) {
	dir := t.TempDir()
	err := Build(filepath.Join(dir, "initramfs.gz"), filepath.Join(dir, "nosuch"), nil)
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
