// SPDX-License-Identifier: Apache-2.0

// Package image builds the initial root file system of a guest: one static program that is its init, and the few modules it
// needs before it can see the host's files. Everything else is the host's own root.
package image

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/cavaliergopher/cpio"
)

// Early are the modules without which a guest does not see the host's root; kernels have some of them built in.
var Early = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"}

// ModuleDir is where they lie in the image; OrderFile there names them in the order of loading.
const (
	ModuleDir = "modules"
	OrderFile = "order"
)

// Build writes an initramfs to out: init is a static executable, modules are .ko files in the order of loading.
func Build(out, init string, modules []string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(out), ".initramfs-*")
	if err != nil {
		return fmt.Errorf("building an initramfs: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := write(f, init, modules); err != nil {
		return fmt.Errorf("building an initramfs at %s: %w", out, err)
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return fmt.Errorf("building an initramfs: %w", err)
	}
	return nil
}

func write(w io.Writer, init string, modules []string) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := &archive{cpio.NewWriter(z)}
	for _, dir := range []string{"dev", "proc", "sys", "host", "upper", "root", ModuleDir} {
		if err := a.add(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755}, nil); err != nil {
			return err
		}
	}
	if err := a.file("init", init, 0o755); err != nil {
		return err
	}
	order := ""
	for _, m := range modules {
		name := filepath.Base(m)
		if err := a.file(path.Join(ModuleDir, name), m, 0o644); err != nil {
			return err
		}
		order += name + "\n"
	}
	if err := a.add(&cpio.Header{Name: path.Join(ModuleDir, OrderFile), Mode: cpio.TypeReg | 0o644}, []byte(order)); err != nil {
		return err
	}
	if err := a.w.Close(); err != nil {
		return err
	}
	return z.Close()
}

type archive struct{ w *cpio.Writer }

func (a *archive) add(h *cpio.Header, body []byte) error {
	h.Size = int64(len(body))
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	_, err := a.w.Write(body)
	return err
}

func (a *archive) file(name, from string, mode fs.FileMode) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return a.add(&cpio.Header{Name: name, Mode: cpio.TypeReg | cpio.FileMode(mode)}, body)
}
