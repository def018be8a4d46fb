// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The setup header of an x86 kernel, as Documentation/arch/x86/boot.rst of the kernel has it. Offsets are in bytes from the
// start of the image.
const (
	offMagic      = 0x202 // "HdrS"
	offVersion    = 0x20e // u16: where the version's text is, less versionBase
	offLoadFlags  = 0x211 // u8
	versionBase   = 0x200
	loadedHigh    = 1 // a flag: a bzImage rather than a zImage
	headerBytes   = 0x240
	versionsBytes = 512 // of the text at most
)

// errNotImage is said of anything that is no bzImage.
var errNotImage = errors.New("not an x86 bzImage (no setup header \"HdrS\" at 0x202); give the file that the kernel's build " +
	"leaves in arch/x86/boot/bzImage, or a distribution's vmlinuz")

// parseRelease returns what uname -r will say once this image is booted, "" if its header does not tell.
func parseRelease(image io.ReaderAt) (string, error) {
	var header [headerBytes]byte
	if n, err := image.ReadAt(header[:], 0); n < len(header) {
		if err == io.EOF {
			err = errNotImage
		}
		return "", err
	}
	if string(header[offMagic:offMagic+4]) != "HdrS" || header[offLoadFlags]&loadedHigh == 0 {
		return "", errNotImage
	}
	offset := int64(binary.LittleEndian.Uint16(header[offVersion:]))
	if offset == 0 {
		return "", nil
	}
	var text [versionsBytes]byte
	n, err := image.ReadAt(text[:], offset+versionBase)
	if err != nil && err != io.EOF {
		return "", err
	}
	end := bytes.IndexByte(text[:n], 0)
	if end < 0 {
		return "", fmt.Errorf("%w: the version that its header points to is beyond its end", errNotImage)
	}
	release, _, _ := strings.Cut(string(text[:end]), " ")
	return release, nil
}

// imageRelease is parseRelease of a file.
func imageRelease(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	release, err := parseRelease(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return release, nil
}

// own returns the kernel of an image of one's own. Its modules are looked for beside it, where a build's
// `make modules_install INSTALL_MOD_PATH=` or an unpacked package has them, then on this machine.
func own(path, cache string) (*Kernel, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("own kernel: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("own kernel: %s is not a file; give the bzImage itself", path)
	}
	release, err := imageRelease(path)
	if err != nil {
		return nil, fmt.Errorf("own kernel: %w", err)
	}
	k := &Kernel{Name: filepath.Base(path), Release: release, Image: path}
	if release == "" {
		return k, nil
	}
	k.prepared = filepath.Join(cache, "own", release)
	dir := filepath.Dir(path)
	// dir/boot/vmlinuz-R; dir/lib/modules/R/vmlinuz; beside the image; this machine's
	for _, root := range []string{filepath.Join(dir, ".."), filepath.Join(dir, "..", "..", ".."), dir, "/"} {
		if exists(filepath.Join(root, "lib", "modules", release)) {
			k.ModulesRoot = filepath.Clean(root)
			break
		}
	}
	return k, nil
}
