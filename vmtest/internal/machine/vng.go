// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/trunkline/trunkline/vmtest/internal/plan"
)

// vngName is virtme-ng's command; `make vmtest-deps` installs it where it can be had.
const vngName = "vng"

// HaveVNG tells whether virtme-ng is installed.
func HaveVNG() bool {
	_, err := exec.LookPath(vngName)
	return err == nil
}

// VNG runs the plan under virtme-ng. Its guest has the host's root from the start and finds its modules by itself.
func VNG(ctx context.Context, s Spec) (*plan.Report, error) {
	path, err := exec.LookPath(vngName)
	if err != nil {
		return nil, fmt.Errorf("%w; install it with `make vmtest-deps`, or use the runner qemu", err)
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	if err := s.start(); err != nil {
		return nil, err
	}
	return s.run(ctx, func(f *os.File) io.Writer { return pipeOnly{f} }, s.vngArgs(path)...)
}

func (s *Spec) vngArgs(path string) []string {
	args := []string{path, "--run", s.Kernel.Image, "--user", "root", "--cpus", "2", "--memory", "2G", "--rwdir=" + s.Share + "=" + s.Share,
		"--append", s.commandLine()}
	if !s.KVM {
		args = append(args, "--disable-kvm", "--qemu-opts=-cpu "+emulatedCPU)
	}
	return append(args, "--", s.Guest, "guest", filepath.Clean(s.Share))
}

// pipeOnly hides that the log is a file: virtme-ng has QEMU open its standard output anew, which truncates a file.
type pipeOnly struct{ f *os.File }

func (p pipeOnly) Write(b []byte) (int, error) { return p.f.Write(b) }
