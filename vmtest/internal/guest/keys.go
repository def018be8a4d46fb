// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	ebpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// keptHooks are the cgroup hooks that tests come and go on.
var keptHooks = []struct {
	typ    ebpf.ProgramType
	attach ebpf.AttachType
}{
	{ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect},
	{ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect},
	{ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetPeername},
	{ebpf.CGroupSockAddr, ebpf.AttachCgroupInet6GetPeername},
	{ebpf.CGroupSockAddr, ebpf.AttachCgroupInet4GetSockname},
	{ebpf.CGroupSockAddr, ebpf.AttachCgroupInet6GetSockname},
	{ebpf.CGroupSKB, ebpf.AttachCGroupInetEgress},
	{ebpf.CGroupSKB, ebpf.AttachCGroupInetIngress},
	{ebpf.SockOps, ebpf.AttachCGroupSockOps},
}

// keepHooks attaches a program that does nothing to each hook, where no test lives, until the guest ends.
//
// The first program on a hook, and the last one's end, have the kernel rewrite its own code while other processors run it.
// Multi-threaded emulation gets that wrong now and then (int3 oops in the guest), and tests that attach and detach hundreds
// of times meet it. With one program there for good, nothing is rewritten. A hook that this kernel lacks needs no keeping.
func keepHooks() error {
	mount, err := cgroup2()
	if err != nil {
		return err
	}
	dir := filepath.Join(mount, "vmtest-keep")
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("keeping hooks: %w", err)
	}
	for _, h := range keptHooks {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "vmtest_keep", Type: h.typ, AttachType: h.attach, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
		if err != nil {
			continue
		}
		l, err := ebpflink.AttachCgroup(ebpflink.CgroupOptions{Path: dir, Attach: h.attach, Program: prog})
		if err == nil {
			kept = append(kept, l)
		}
	}
	return keepInterfaceHooks()
}

// kept are never closed: they go with the guest.
var kept []any

// keepInterfaceHooks does the same for the hooks of interfaces, on the loopback of a namespace that nobody uses.
func keepInterfaceHooks() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			ns, err := netns.New()
			if err != nil {
				return fmt.Errorf("keeping hooks: %w", err)
			}
			kept = append(kept, ns)
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return fmt.Errorf("keeping hooks: %w", err)
			}
			index := lo.Attrs().Index
			_ = netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact",
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "vmtest_keep", Type: ebpf.SchedCLS, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
			if err != nil {
				return nil
			}
			if l, err := ebpflink.AttachTCX(ebpflink.TCXOptions{Interface: index, Program: prog, Attach: ebpf.AttachTCXEgress}); err == nil {
				kept = append(kept, l)
			}
			return nil
		}()
	}()
	return <-done
}

func cgroup2() (string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("finding cgroup2: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("no cgroup2 is mounted in the guest")
}
