// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"compress/gzip"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

const (
	cannedDeps = `kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/fs/9p/9p.ko.xz: kernel/fs/netfs/netfs.ko.xz kernel/net/9p/9pnet.ko.xz
kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz
kernel/fs/netfs/netfs.ko.xz:
kernel/lib/libcrc32c.ko:
kernel/arch/x86/crypto/crc32c-intel.ko:
kernel/crypto/crc32c_generic.ko:
kernel/net/ring_a.ko:
kernel/net/ring_b.ko:
`
	cannedBuiltin = "kernel/net/ipv4/tcp_cubic.ko\nkernel/drivers/net/tun.ko\n"
	cannedSoft    = "# comment\nsoftdep libcrc32c pre: crc32c\nsoftdep ring_a post: ring_b nonesuch\nsoftdep ring_b pre: ring_a\n"
	cannedAliases = "alias crc32c crc32c_intel\nalias crc32c crc32c_generic\nalias fs-9p 9p\nalias pci:v0* virtio_pci\n"
)

func TestClosureIsInLoadOrder(t *testing.T) {
	list := parseModuleList(cannedDeps, cannedBuiltin, cannedSoft, cannedAliases)
	for _, c := range []struct{ names, want, missing string }{
		{names: "virtio_pci", want: "virtio_ring virtio virtio_pci"},
		{names: "virtio-pci virtio", want: "virtio_ring virtio virtio_pci"},
		{names: "9p", want: "netfs 9pnet 9p"},
		{names: "fs-9p 9pnet", want: "netfs 9pnet 9p"},
		{names: "tcp_cubic tun"},
		{names: "nonesuch 9pnet pci:v0*", want: "netfs 9pnet", missing: "nonesuch pci:v0*"},
		{names: "libcrc32c", want: "crc32c_intel crc32c_generic libcrc32c"},
		{names: "ring_a", want: "ring_a ring_b"},
		{names: "ring_b", want: "ring_a ring_b"},
	} {
		files, missing := list.closure(strings.Fields(c.names))
		var got []string
		for _, f := range files {
			got = append(got, moduleName(f))
		}
		if strings.Join(got, " ") != c.want || strings.Join(missing, " ") != c.missing {
			t.Errorf("%s: got %v, missing %v; want %q, missing %q", c.names, got, missing, c.want, c.missing)
		}
	}
}

// moduleTree is a kernel with one compressed module: a copy of this program, since only its being ELF matters.
func moduleTree(t *testing.T) (k *Kernel, module string) {
	t.Helper()
	k = &Kernel{Name: "test", Release: "9.9.9", ModulesRoot: t.TempDir(), prepared: t.TempDir()}
	dir := filepath.Join(k.ModulesRoot, "lib/modules/9.9.9")
	module = filepath.Join(dir, "kernel/mod-a.ko.gz")
	write(t, filepath.Join(dir, "modules.dep"), []byte("kernel/mod-a.ko.gz:\n"))
	write(t, filepath.Join(dir, "modules.builtin.modinfo"), []byte("ipv6.parm=disable:text\x00ipv6.license=GPL\x00"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var packed strings.Builder
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, module, []byte(packed.String()))
	return k, module
}

func TestModulesAreDecompressedStrippedAndKept(t *testing.T) {
	testkit.NeedProgram(t, "strip")
	k, module := moduleTree(t)
	prepareOnce := func() (string, time.Time) {
		paths, missing, err := k.Modules(t.Context(), []string{"mod_a", "ipv6", "other"})
		if err != nil || len(paths) != 1 || !slices.Equal(missing, []string{"other"}) {
			t.Fatalf("got %v, missing %v, %v", paths, missing, err)
		}
		info, err := os.Stat(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		return paths[0], info.ModTime()
	}
	path, _ := prepareOnce()
	if path != filepath.Join(k.prepared, "mod-a.ko") {
		t.Fatalf("got %s", path)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil {
		t.Error("debugging information is still there")
	}
	left, err := os.ReadDir(k.prepared)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	write(t, path, []byte("as kept"))
	source, err := os.Stat(module)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, source.ModTime()); err != nil {
		t.Fatal(err)
	}
	prepareOnce()
	if text, err := os.ReadFile(path); err != nil || string(text) != "as kept" {
		t.Error("a module that was prepared before was prepared again")
	}
	if err := os.Chtimes(module, time.Time{}, source.ModTime().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	prepareOnce()
	if text, err := os.ReadFile(path); err != nil || string(text) == "as kept" {
		t.Error("a module that was built anew was taken from before")
	}
}

func TestBrokenModulesAreErrorsThatNameThem(t *testing.T) {
	k, module := moduleTree(t)
	write(t, module, []byte("no gzip"))
	if _, _, err := k.Modules(t.Context(), []string{"mod_a"}); err == nil || !strings.Contains(err.Error(), "mod-a.ko.gz of test") {
		t.Errorf("got %v", err)
	}
	k.Release = "8.8.8"
	if _, _, err := k.Modules(t.Context(), []string{"mod_a"}); err == nil || !strings.Contains(err.Error(), "depmod -b") {
		t.Errorf("got %v", err)
	}
}
