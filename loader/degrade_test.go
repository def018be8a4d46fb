// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

// attachOther attaches a program of someone else, which lets everything pass, to a cgroup in the old way.
func attachOther(t *testing.T, dir string, typ ebpf.ProgramType, at ebpf.AttachType, flags uint32) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "other", Type: typ, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(f.Fd()), Program: prog, Attach: at, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
}

func feature(t *testing.T, l *Loader, name string) Feature {
	t.Helper()
	for _, f := range l.Features() {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no feature %s in %+v", name, l.Features())
	return Feature{}
}

// need skips a test of a feature that is off on this kernel.
func need(t *testing.T, l *Loader, name string) {
	t.Helper()
	if f := feature(t, l, name); !f.On {
		testkit.NeedFeature(t, name, errors.New(f.Detail))
	}
}

// Someone else's program forbids ours on one hook: that hook is off, with a remedy, the others are on, and nobody's
// program is detached.
func TestDegradesBesideAnExclusiveProgram(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	above := filepath.Join(testenv.Mount(t), testenv.Cgroup())
	inner, _ := testenv.SubCgroup(t, "inner")
	attachOther(t, above, ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect, 0)
	l, err := Load(t.Context(), Options{Cgroup: inner, BPFFS: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	f := feature(t, l, "steering-ipv4")
	if f.On || f.Detail == "" || !strings.Contains(f.Remedy, "bpftool cgroup tree") {
		t.Errorf("%+v", f)
	}
	if f := feature(t, l, "steering-ipv6"); !f.On && testkit.IPv6() == nil {
		t.Errorf("%+v", f)
	}
	for _, at := range []ebpf.AttachType{ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet4GetSockname} {
		if n := len(attached(t, l.cgroup, at)); n != 0 {
			t.Errorf("%s: %d programs of a family that is off are attached", at, n)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(attached(t, above, ebpf.AttachCGroupInet4Connect)); n != 1 {
		t.Errorf("%d programs above, want the other's one", n)
	}
}

func TestWarnsOfEgressProgramsBelow(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	inner, dir := testenv.SubCgroup(t, "filtered")
	attachOther(t, dir, ebpf.CGroupSKB, ebpf.AttachCGroupInetEgress, 0)
	l, err := Load(t.Context(), Options{Cgroup: testenv.Cgroup(), BPFFS: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if f := feature(t, l, "steering-ipv4"); !f.On || !strings.Contains(f.Detail, filepath.Base(inner)) {
		t.Errorf("%+v", f)
	}
}

func TestLoadsWithoutIPv6(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	none := testkit.IPv6() // then there is nothing to switch off, and no such sysctl
	for _, which := range []string{"all", "default", "lo"} {
		if err := ledger.WriteSysctl("net.ipv6.conf."+which+".disable_ipv6", "1"); err != nil && none == nil {
			t.Fatal(err)
		}
	}
	l, err := Load(t.Context(), Options{Cgroup: testenv.Cgroup(), BPFFS: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if f := feature(t, l, "steering-ipv4"); !f.On {
		t.Errorf("%+v", f)
	}
	// IPv6 sockets that connect to IPv4 are steered wherever there are any.
	f := feature(t, l, "steering-ipv6")
	if f.On != (none == nil) || !f.On && (!strings.Contains(f.Detail, "no IPv6") || !strings.Contains(f.Remedy, "ipv6.disable=1")) {
		t.Errorf("%+v, without IPv6 sockets: %v", f, none)
	}
}
