// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bzImage is the start of an image whose header gives the version.
func bzImage(version string) []byte {
	const at = 0x300
	image := make([]byte, at)
	copy(image[offMagic:], "HdrS")
	image[offLoadFlags] = loadedHigh
	if version != "" {
		binary.LittleEndian.PutUint16(image[offVersion:], at-versionBase)
	}
	return append(image, version...)
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseComesFromTheImagesHeader(t *testing.T) {
	zImage := bzImage("6.1.0 (a@b) #1\x00")
	zImage[offLoadFlags] = 0
	for name, c := range map[string]struct {
		image      []byte
		want, fail string
	}{
		"debian":        {image: bzImage("6.12.95+deb12-amd64 (debian-kernel@lists) #1 SMP\x00"), want: "6.12.95+deb12-amd64"},
		"no version":    {image: bzImage("")},
		"unterminated":  {image: bzImage("6.12.95"), fail: "beyond its end"},
		"elf":           {image: append([]byte("\x7fELF"), make([]byte, 4096)...), fail: "HdrS"},
		"short":         {image: []byte("short"), fail: "HdrS"},
		"empty":         {fail: "HdrS"},
		"zImage":        {image: zImage, fail: "HdrS"},
		"long version":  {image: bzImage(strings.Repeat("v", versionsBytes+1) + "\x00"), fail: "beyond its end"},
		"version alone": {image: bzImage("7.0.0\x00"), want: "7.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "image")
			write(t, path, c.image)
			got, err := imageRelease(path)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(err.Error(), path) {
					t.Fatalf("got %q, %v; want an error that names the file and says %q", got, err, c.fail)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestOwnImageFindsItsModules(t *testing.T) {
	const release = "9.9.9-test"
	for name, at := range map[string]struct{ image, modules string }{
		"unpacked package": {"boot/vmlinuz-" + release, "."},
		"split package":    {"usr/lib/modules/" + release + "/vmlinuz", "usr"},
		"beside":           {"bzImage", "."},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, at.image), bzImage(release+" x\x00"))
			write(t, filepath.Join(dir, at.modules, "lib/modules", release, "modules.dep"), nil)
			k, err := Get(t.Context(), filepath.Join(dir, at.image), t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := Kernel{Name: filepath.Base(at.image), Release: release, Image: filepath.Join(dir, at.image),
				ModulesRoot: filepath.Join(dir, at.modules), prepared: k.prepared}
			if *k != want {
				t.Fatalf("got %+v, want %+v", *k, want)
			}
		})
	}
}

func TestOwnImageWithoutModulesHasAllBuiltIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bzImage")
	write(t, path, bzImage("9.9.9-alone x\x00"))
	k, err := Get(t.Context(), path, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	paths, missing, err := k.Modules(t.Context(), []string{"veth"})
	if k.ModulesRoot != "" || len(paths)+len(missing) > 0 || err != nil {
		t.Fatalf("got %+v with modules %v, missing %v, %v", k, paths, missing, err)
	}
}

func TestOwnImageErrorsAreOneAndClear(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "text"), []byte("no kernel"))
	for path, want := range map[string]string{
		dir + "/none": "own kernel: stat " + dir + "/none: no such file or directory",
		dir + "/":     "own kernel: " + dir + " is not a file; give the bzImage itself",
		dir + "/text": "own kernel: " + dir + "/text: " + errNotImage.Error(),
	} {
		if _, err := Get(t.Context(), path, t.TempDir(), nil); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}
