// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/trunkline/trunkline/vmtest/internal/guest"
	"github.com/trunkline/trunkline/vmtest/internal/image"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// qemuName is the emulator; `make vmtest-deps` installs it.
const qemuName = "qemu-system-x86_64"

// The processor of an emulated guest. Without fast strings an iteration of `rep movsb` is no instruction of its own, which
// under a clock that counts them makes copying three times faster; five-level page tables only cost.
const emulatedCPU = "max,-erms,-fsrm,-la57"

// QEMU boots a kernel, runs the plan and returns the guest's answer.
func QEMU(ctx context.Context, s Spec) (*plan.Report, error) {
	path, err := exec.LookPath(qemuName)
	if err != nil {
		return nil, fmt.Errorf("%w; install it with `make vmtest-deps`", err)
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	if err := s.start(); err != nil {
		return nil, err
	}
	initrd := filepath.Join(s.Share, "initramfs.gz")
	early, missing, err := s.Kernel.Modules(ctx, image.Early)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("kernel %s has neither built in nor as a module: %s; a guest needs them to see the host's files",
			s.Kernel.Name, strings.Join(missing, " "))
	}
	if err := image.Build(initrd, s.Guest, early); err != nil {
		return nil, err
	}
	defer os.Remove(initrd)
	return s.run(ctx, func(f *os.File) io.Writer { return f }, append([]string{path}, s.qemuArgs(initrd)...)...)
}

func (s *Spec) qemuArgs(initrd string) []string {
	memory := s.Memory
	if memory == "" {
		memory = "2G"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "q35", "-m", memory,
		"-kernel", s.Kernel.Image, "-initrd", initrd, "-append", s.commandLine(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=" + guest.RootTag,
		"-fsdev", "local,id=share,path=" + escape(s.Share) + ",security_model=none",
		"-device", "virtio-9p-pci,fsdev=share,mount_tag=" + guest.ShareTag,
	}
	return append(args, s.accelArgs()...)
}

// escape doubles commas, which separate QEMU's options.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

func (s *Spec) accelArgs() []string {
	switch {
	case s.Exact:
		return []string{"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1", "-cpu", emulatedCPU}
	case s.KVM:
		return []string{"-accel", "kvm", "-smp", "2", "-cpu", "host"}
	}
	return []string{"-accel", "tcg,thread=multi", "-smp", "2", "-cpu", emulatedCPU}
}

// commandLine quiets what only costs time under emulation: mitigations, zeroing of each allocation, and the check of the
// timer, which fails on a host under load.
func (s *Spec) commandLine() string {
	return strings.TrimSpace("console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr init_on_alloc=0 no_timer_check " +
		"random.trust_cpu=on " + s.Append)
}
