// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrNoTCX says that programs at an interface need clsact.
var ErrNoTCX = errors.New("the kernel has no tcx")

// loopback is the index of the loopback interface, in any network namespace.
const loopback = 1

// TCX asks for the programs at an interface, which changes nothing: a kernel without tcx does not know the question.
func TCX() error {
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXEgress})
	switch {
	case err == nil, errors.Is(err, unix.ENOENT): // none so far
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, ebpf.ErrNotSupported):
		return ErrNoTCX
	}
	return fmt.Errorf("asking for tcx: %w", err)
}

// Clsact says what is missing for filters of clsact, as far as it can be known without changing anything: nil where there is
// no list of the kernel's modules.
func Clsact() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]))
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil
	}
	loadable, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil
	}
	for _, name := range []string{"sch_ingress", "cls_bpf"} {
		file := "/" + name + ".ko"
		if !bytes.Contains(builtin, []byte(file)) && !bytes.Contains(loadable, []byte(file)) {
			return fmt.Errorf("the kernel has neither tcx nor %s", name)
		}
	}
	return nil
}

// Preflight says what would keep Load from running at all here, for a cgroup below the cgroup2 mount. It changes nothing.
func Preflight(cgroup string) []error {
	var errs []error
	if err := checkCapabilities(); err != nil {
		errs = append(errs, err)
	}
	if _, err := findCgroup("/proc/self/mountinfo", cgroup); err != nil {
		errs = append(errs, err)
	}
	return errs
}
