// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Mode is how an algorithm is registered.
type Mode string

// The modes. A link goes with the last process that holds it; without one the registration stays until it is taken away.
const (
	Any    Mode = ""     // by link where the kernel has it
	ByLink Mode = "link" // Linux 6.4 and later
	ByMap  Mode = "map"  // Linux 6.1 and later
)

// Unsupported says why the kernel takes no congestion control of ours, and what would help.
type Unsupported struct {
	Why, Remedy string
	err         error
}

func (e *Unsupported) Error() string { return e.Why + "; " + e.Remedy }

func (e *Unsupported) Unwrap() error { return e.err }

// Probe says how this kernel registers algorithms: it has the simplest one checked by the kernel, and registers nothing.
// The error is an *Unsupported.
func Probe() (Mode, error) {
	a := catalogue[0]
	err := tryLoad(a, linkFlag)
	if err == nil {
		return ByLink, nil
	}
	if !lacksLinks(err) {
		return Any, unsupported(err)
	}
	// Creating the other kind of map and writing it would register: the programs tell as much.
	if err := tryLoad(a, 0); err != nil {
		return Any, unsupported(err)
	}
	return ByMap, nil
}

func tryLoad(a Algorithm, flag uint32) error {
	spec, err := a.spec(flag)
	if err != nil {
		return err
	}
	if flag&linkFlag == 0 {
		delete(spec.Maps, a.Name)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("loading %s: %w", a.Name, err)
	}
	coll.Close()
	return nil
}

// lacksLinks says whether the kernel refused the flag of maps that links register.
func lacksLinks(err error) bool {
	var ve *ebpf.VerifierError
	return errors.Is(err, unix.EINVAL) && !errors.As(err, &ve)
}

// unsupported finds words for a refusal.
func unsupported(err error) error {
	var ve *ebpf.VerifierError
	e := &Unsupported{err: err}
	jit, _ := os.ReadFile("/proc/sys/net/core/bpf_jit_enable")
	_, btfErr := os.Stat("/sys/kernel/btf/vmlinux")
	switch {
	case errors.Is(btfErr, os.ErrNotExist):
		e.Why, e.Remedy = "the kernel carries no BTF", "needs a kernel built with CONFIG_DEBUG_INFO_BTF (/sys/kernel/btf/vmlinux)"
	case strings.TrimSpace(string(jit)) == "0":
		e.Why, e.Remedy = "BPF's compiler is off", "sysctl -w net.core.bpf_jit_enable=1"
	case errors.Is(err, unix.EPERM):
		e.Why, e.Remedy = "not permitted: "+err.Error(), "run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
	case errors.As(err, &ve):
		e.Why, e.Remedy = fmt.Sprintf("the kernel's verifier refuses it: %v", ve), "needs Linux 6.1 or later; on such a kernel please report it"
	case errors.Is(err, ebpf.ErrNotSupported):
		e.Why, e.Remedy = "the kernel has no struct_ops: "+err.Error(), "needs Linux 6.1 or later with CONFIG_BPF_JIT and CONFIG_BPF_SYSCALL"
	default:
		e.Why, e.Remedy = err.Error(), "needs Linux 6.1 or later with CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF"
	}
	e.Why, _, _ = strings.Cut(e.Why, "\n")
	return e
}
