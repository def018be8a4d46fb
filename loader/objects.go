// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// createMaps creates every map of the layout once; the objects are given them.
func (l *Loader) createMaps() error {
	spec, err := bpf.Layout()
	if err != nil {
		return fmt.Errorf("reading the maps' layout: %w", err)
	}
	for name, s := range spec.Maps {
		if strings.HasPrefix(name, ".") { // data sections are no maps of ours
			continue
		}
		if name == "tl_orig" {
			s.MaxEntries = min(s.MaxEntries, backlog())
		}
		if name == "tl_loss" && l.o.lossBytes != 0 {
			s.MaxEntries = l.o.lossBytes
		}
		m, err := ebpf.NewMap(s)
		switch {
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("the kernel refuses bpf(): %w; see that nothing (container, seccomp, lockdown) forbids it", err)
		case errors.Is(err, unix.ENOSYS):
			return fmt.Errorf("this kernel has no bpf(): %w; it needs CONFIG_BPF_SYSCALL", err)
		case err != nil:
			return fmt.Errorf("creating map %s: %w", name, err)
		}
		l.maps[name] = m
	}
	return nil
}

// backlog is how many connections may wait for an accept of the engine. No more than that are steered before it has taken
// them: a SYN beyond would be dropped, and come again a second later, when the agent may have been killed.
func backlog() uint32 {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return math.MaxUint32
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil || n == 0 {
		return math.MaxUint32
	}
	return uint32(n)
}

// loadObject loads one hook's object with the instance's maps. A map that only this object has is shared with those that
// are loaded later. The collection is closed with the loader; its programs stay where they are attached until then.
func (l *Loader) loadObject(read func() (*ebpf.CollectionSpec, error)) (*ebpf.Collection, error) {
	spec, err := read()
	if err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m, ok := l.maps[name]; ok {
			shared[name] = m
			spec.Maps[name].MaxEntries = m.MaxEntries() // createMaps fits them to the host
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("loading programs: %w", err)
	}
	for name := range coll.Maps {
		if _, ok := shared[name]; !ok && !strings.HasPrefix(name, ".") {
			l.maps[name] = coll.DetachMap(name)
		}
	}
	l.onClose(func() error { coll.Close(); return nil })
	return coll, nil
}

// attachCgroup attaches a program of the collection to the instance's cgroup by a link, beside whatever else is there.
// Only links will do: an attachment of the older kind would outlive a killed agent.
func (l *Loader) attachCgroup(coll *ebpf.Collection, program string, at ebpf.AttachType) error {
	prog := coll.Programs[program]
	if prog == nil {
		return fmt.Errorf("the object has no program %s", program)
	}
	dir, err := os.Open(l.cgroup)
	if err != nil {
		return fmt.Errorf("opening the cgroup: %w", err)
	}
	defer dir.Close()
	lk, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: prog, Attach: at})
	if err != nil {
		return fmt.Errorf("attaching %s to %s: %w", program, l.cgroup, err)
	}
	l.onClose(lk.Close)
	return nil
}

// minKernel is the first kernel with everything but tcx.
const minKernel = "6.1"

// whyNot says in one line why something could not be loaded or attached, and what would help.
func whyNot(err error, minKernel string) (detail, remedy string) {
	var ve *ebpf.VerifierError
	refused := errors.As(err, &ve)
	switch {
	case noBTF() && (refused || errors.Is(err, ebpf.ErrNotSupported)):
		detail = fmt.Sprintf("the kernel carries no BTF: %v", err)
		remedy = "needs a kernel built with CONFIG_DEBUG_INFO_BTF (/sys/kernel/btf/vmlinux)"
	case refused:
		detail = fmt.Sprintf("the kernel's verifier refuses it: %v", ve)
		remedy = "needs Linux " + minKernel + " or later; on such a kernel please report it"
	case errors.Is(err, unix.EPERM):
		detail = fmt.Sprintf("not permitted: %v", err)
		remedy = "a program attached without BPF_F_ALLOW_MULTI on a cgroup above may forbid others: see `bpftool cgroup tree`; nothing of others is detached"
	default:
		detail = err.Error()
		remedy = "needs Linux " + minKernel + " or later with CONFIG_CGROUP_BPF"
	}
	detail, _, _ = strings.Cut(detail, "\n")
	return detail, remedy
}

// noBTF says whether the kernel keeps its types to itself.
func noBTF() bool {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return errors.Is(err, os.ErrNotExist)
}
