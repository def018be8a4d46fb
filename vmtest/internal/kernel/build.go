// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// nobtfConfig names all that is on in the kernel without BTF.
//
//go:embed nobtf.config
var nobtfConfig string

const (
	sourcePackage = "linux-source-6.1"
	builtSuffix   = "-nobtf" // of the release, as nobtf.config has it
	imageInBuild  = "arch/x86/boot/bzImage"
)

// buildHint is the remedy for what usually fails.
const buildHint = "is all of packaging/vmtest-deps.sh installed, and are 4 GB free?"

// unneeded parts of the source are not unpacked, which saves a third of that time. Their Kconfig files and Makefiles stay,
// since others read them.
var unneeded = []string{"*/arch/[!x]*/*.[chS]", "*/arch/*.dts*", "*/sound/*.[ch]", "*/drivers/gpu/*.[ch]",
	"*/drivers/media/*.[ch]", "*/drivers/staging/*.[ch]", "*/Documentation/*.rst"}

// recipe tells apart kernels that were built by different configurations.
func recipe() string {
	sum := sha256.Sum256([]byte(nobtfConfig))
	return hex.EncodeToString(sum[:6])
}

// build makes the kernel without BTF from Debian's source of 6.1, which takes some ten minutes on two processors. The caller
// holds the name's lock.
func (s store) build(ctx context.Context, l log) (*Kernel, error) {
	for _, name := range []string{"gcc", "make", "flex", "bison", "bc", "xz"} {
		if _, err := lookProgram(name); err != nil {
			return nil, err
		}
	}
	deb, version, err := s.source(ctx, l)
	if err != nil {
		return nil, err
	}
	if k, r := s.load(NoBTF); k != nil && r.Recipe == recipe() && r.Version == version {
		l.say("%s in the cache is current", version)
		return k, nil
	}
	dir, remove, err := s.scratch(NoBTF)
	if err != nil {
		return nil, err
	}
	defer remove()
	source, err := unpackSource(ctx, deb, dir, l)
	if err != nil {
		return nil, err
	}
	if err := configure(ctx, source, nobtfConfig, l); err != nil {
		return nil, fmt.Errorf("configuring %s %s: %w", sourcePackage, version, err)
	}
	if err := compile(ctx, source, l); err != nil {
		return nil, fmt.Errorf("building %s %s: %w; %s", sourcePackage, version, err, buildHint)
	}
	return s.keepBuilt(source, filepath.Join(dir, "tree"), version)
}

// source returns Debian's package of the source, which is kept in the cache so that another configuration needs no network.
func (s store) source(ctx context.Context, l log) (deb, version string, err error) {
	dir := filepath.Join(s.dir, "sources")
	if deb, version, err = s.fetchSource(ctx, dir, l); err == nil || ctx.Err() != nil {
		return deb, version, err
	}
	kept, _ := filepath.Glob(filepath.Join(dir, sourcePackage+"_*.deb"))
	if len(kept) == 0 {
		return "", "", err
	}
	l.say("using %s: %v", kept[0], err)
	return kept[0], sourceVersion(kept[0]), nil
}

// sourceVersion returns the version in the name of a .deb, as apt writes it.
func sourceVersion(deb string) string {
	fields := strings.Split(filepath.Base(deb), "_")
	return strings.ReplaceAll(fields[1], "%3a", ":")
}

func (s store) fetchSource(ctx context.Context, dir string, l log) (deb, version string, err error) {
	root, release, err := openApt(ctx, s.dir, bookworm, l)
	if err != nil {
		return "", "", err
	}
	defer release()
	if err := root.update(ctx, l); err != nil {
		return "", "", err
	}
	found, err := root.show(ctx, sourcePackage)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("no package %s in %s", sourcePackage, strings.Join(bookworm, ", "))
	}
	if err != nil {
		return "", "", err
	}
	version = found[0].Version
	kept, _ := filepath.Glob(filepath.Join(dir, sourcePackage+"_*.deb"))
	for _, k := range kept {
		if sourceVersion(k) == version {
			return k, version, nil
		}
	}
	scratch, remove, err := s.scratch(sourcePackage)
	if err != nil {
		return "", "", err
	}
	defer remove()
	debs, err := root.download(ctx, scratch, found, l)
	if err != nil {
		return "", "", err
	}
	for _, k := range kept {
		err = errors.Join(err, os.Remove(k))
	}
	deb = filepath.Join(dir, filepath.Base(debs[0]))
	return deb, version, errors.Join(err, os.MkdirAll(dir, 0o755), os.Rename(debs[0], deb))
}

func unpackSource(ctx context.Context, deb, dir string, l log) (string, error) {
	source := filepath.Join(dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", err
	}
	args := []string{"tar", "-x", "-C", source, "--strip-components=1"}
	for _, pattern := range unneeded {
		args = append(args, "--exclude="+pattern)
	}
	args = append(args, "-f", filepath.Join(dir, "deb", "usr", "src", sourcePackage+".tar.xz"))
	err := l.step("unpacking the source", nil, func() error {
		if _, err := (program{}).run(ctx, "dpkg-deb", "-x", deb, filepath.Join(dir, "deb")); err != nil {
			return err
		}
		_, err := program{}.run(ctx, "nice", args...)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", deb, err)
	}
	return source, nil
}

// kbuild is how the kernel's make is called: for this machine whatever the environment says, and with the same result for
// the same source and configuration.
var kbuild = []string{"make", "ARCH=x86_64", "CROSS_COMPILE=", "KBUILD_BUILD_USER=trunkline", "KBUILD_BUILD_HOST=vmtest"}

// configure makes .config of all that config names and nothing else, and fails if the source knows one by another name.
func configure(ctx context.Context, source, config string, l log) error {
	path := filepath.Join(source, "trunkline.config")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		return err
	}
	p := program{dir: source, env: []string{"KCONFIG_ALLCONFIG=" + path}}
	err := l.step("configuring", nil, func() error {
		_, err := p.run(ctx, "nice", slices.Concat(kbuild, []string{"allnoconfig"})...)
		return err
	})
	if err != nil {
		return err
	}
	result, err := os.ReadFile(filepath.Join(source, ".config"))
	if err != nil {
		return err
	}
	if lost := lostOptions(config, string(result)); len(lost) > 0 {
		return fmt.Errorf("this source does not take %s from nobtf.config: renamed, or something they depend on is off",
			strings.Join(lost, " "))
	}
	return nil
}

// lostOptions returns the lines of a wanted configuration that do not hold in the resulting one.
func lostOptions(wanted, result string) []string {
	set := map[string]string{}
	for _, line := range strings.Split(result, "\n") {
		if name, value, found := strings.Cut(line, "="); found {
			set[name] = value
		}
	}
	var lost []string
	for _, line := range strings.Split(wanted, "\n") {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(name, "#") {
			continue
		}
		got, isSet := set[name]
		if !isSet {
			got = "n"
		}
		if got != value {
			lost = append(lost, name+"="+value)
		}
	}
	return lost
}

func compile(ctx context.Context, source string, l log) error {
	var lines lineCounter
	p := program{dir: source, stdout: &lines}
	args := slices.Concat(kbuild, []string{"-j" + strconv.Itoa(2*runtime.NumCPU()), "bzImage"})
	far := func() string { return fmt.Sprintf("%d steps of some 1900 done", lines.n.Load()) }
	return l.step("compiling", far, func() error {
		_, err := p.run(ctx, "nice", args...)
		return err
	})
}

// keepBuilt moves image and configuration into the cache.
func (s store) keepBuilt(source, tree, version string) (*Kernel, error) {
	image := filepath.Join(source, imageInBuild)
	release, err := imageRelease(image)
	if err != nil {
		return nil, err
	}
	boot := filepath.Join(tree, "boot")
	if err := errors.Join(os.MkdirAll(boot, 0o755),
		os.Rename(image, filepath.Join(boot, "vmlinuz-"+release)),
		os.Rename(filepath.Join(source, ".config"), filepath.Join(boot, "config-"+release))); err != nil {
		return nil, err
	}
	return s.save(tree, record{Name: NoBTF, Release: release, Version: version, Recipe: recipe(),
		Tree: treeName(release, version+"-"+recipe())})
}

// lineCounter counts the lines that are written to it.
type lineCounter struct{ n atomic.Int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.n.Add(int64(strings.Count(string(p), "\n")))
	return len(p), nil
}
