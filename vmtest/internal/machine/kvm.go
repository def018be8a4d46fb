// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/vmtest/internal/kernel"
	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// probeLimit is enough for a guest with KVM to boot many times over.
const probeLimit = 20 * time.Second

// HaveKVM tells whether a guest boots with KVM on this machine. It tries, for there are machines whose /dev/kvm opens and
// whose guests hang.
func HaveKVM(ctx context.Context, k *kernel.Kernel, guest string) bool {
	if unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) != nil {
		return false
	}
	dir, err := os.MkdirTemp("", "trunkline-kvm-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	_, err = QEMU(ctx, Spec{Kernel: k, Share: filepath.Join(dir, "share"), Guest: guest, Plan: plan.Plan{}, KVM: true, Limit: probeLimit})
	return err == nil
}
