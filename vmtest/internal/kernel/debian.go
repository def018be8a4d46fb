// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// debian fetches a kernel by name, from the first place that has it. The caller holds the name's lock.
func (s store) debian(ctx context.Context, name string, l log) (*Kernel, error) {
	var looked []string
	for _, where := range places(name) {
		k, err := s.debianFrom(ctx, where, name, l)
		if k != nil || err != nil {
			return k, err
		}
		looked = append(looked, where...)
	}
	return nil, fmt.Errorf("Debian has no kernel %s in %s", name, strings.Join(looked, ", "))
}

// debianFrom returns nil if the place has no kernel of this name.
func (s store) debianFrom(ctx context.Context, where place, name string, l log) (*Kernel, error) {
	root, release, err := openApt(ctx, s.dir, where, l)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := root.update(ctx, l); err != nil {
		return nil, err
	}
	f, err := resolve(ctx, root, name)
	if f == nil || err != nil {
		return nil, err
	}
	r := record{Name: majorMinor(f.release), Release: f.release, Version: f.version, Modules: true,
		Tree: treeName(f.release, f.version)}
	var aliases []string
	if name == Newest {
		aliases = []string{Newest}
	}
	if k := s.kernel(r); k.check() == nil { // another name's, or this one's current already
		l.say("%s in the cache is current", f.version)
		return s.save("", r, aliases...)
	}
	dir, remove, err := s.scratch(name)
	if err != nil {
		return nil, err
	}
	defer remove()
	debs, err := root.download(ctx, dir, f.packages, l)
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(dir, "tree")
	if err := unpack(ctx, debs, tree, r.Release, l); err != nil {
		if len(f.lacking) > 0 {
			err = fmt.Errorf("%w; %s no longer has %s", err, where[0], strings.Join(f.lacking, ", "))
		}
		return nil, err
	}
	return s.save(tree, r, aliases...)
}

// unpack makes one tree of the packages of a kernel, with the image in boot and the modules in lib/modules, whatever the
// packages' layout is.
func unpack(ctx context.Context, debs []string, tree, release string, l log) error {
	for _, deb := range debs {
		if err := l.step("unpacking "+filepath.Base(deb), nil, func() error {
			_, err := program{}.run(ctx, "dpkg-deb", "-x", deb, tree)
			return err
		}); err != nil {
			return fmt.Errorf("unpacking %s: %w", deb, err)
		}
	}
	if err := arrange(tree, release); err != nil {
		return err
	}
	return l.step("listing what modules need", nil, func() error {
		_, err := program{}.run(ctx, "depmod", "-b", tree, release)
		return err
	})
}

// arrange gives a tree that has everything below usr the names in boot and lib that others look for.
func arrange(tree, release string) error {
	if !exists(filepath.Join(tree, "lib")) && exists(filepath.Join(tree, "usr", "lib", "modules")) {
		if err := os.Symlink("usr/lib", filepath.Join(tree, "lib")); err != nil {
			return err
		}
	}
	modules := filepath.Join("lib", "modules", release)
	if !exists(filepath.Join(tree, modules, "kernel")) {
		return fmt.Errorf("the packages of %s hold no %s/kernel; their layout is new, please report it", release, modules)
	}
	image := filepath.Join(tree, "boot", "vmlinuz-"+release)
	if exists(image) {
		return nil
	}
	if !exists(filepath.Join(tree, modules, "vmlinuz")) {
		return fmt.Errorf("the packages of %s hold neither boot/vmlinuz-%s nor %s/vmlinuz; their layout is new, please "+
			"report it", release, release, modules)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(image), 0o755),
		os.Symlink(filepath.Join("..", modules, "vmlinuz"), image))
}
