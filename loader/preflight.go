// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrNoTCX says that packets cannot be marked.
var ErrNoTCX = errors.New("the kernel has no tcx, which marks need at the interfaces")

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
