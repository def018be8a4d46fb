// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

func TestWindows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rmem_max")
	if err := os.WriteFile(path, []byte("212992\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		window uint32
		level  Level
		text   string
	}{
		{0, "", ""},
		{212992, "", ""},
		{8 << 20, OK, "from 212992 to 8388608"},
	} {
		r := &report{}
		windows(r, &config.Config{Rules: []config.Rule{{Name: "web", WindowBytes: c.window}}}, path)
		if got := find(r.findings, "window"); got.Level != c.level || !strings.Contains(got.Text, c.text) {
			t.Errorf("%d: %+v", c.window, got)
		}
	}
}

// A key that the agent would refuse is an error here too.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "is not a regular file", junk: "is not a PEM file"} {
		r := &report{}
		files(r, &config.Config{Key: path})
		if got := find(r.findings, "key"); got.Level != Error || !strings.Contains(got.Text, want) {
			t.Errorf("%s: %+v, want %q", path, got, want)
		}
	}
}
