// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/loader"
)

// hooks asks the kernel for the program types. What else a feature needs only loading it shows.
func hooks(r *report) {
	for _, h := range []struct {
		kind       ebpf.ProgramType
		name, lost string
	}{
		{ebpf.CGroupSockAddr, "steering", "connections are not steered, so nothing is deduplicated"},
		{ebpf.SockOps, "rules", "congestion control, windows and telemetry stay off"},
		{ebpf.CGroupSKB, "marks", "no packet is marked"},
		{ebpf.SkMsg, "splice", "there is no fast path on loopback"},
	} {
		err := features.HaveProgramType(h.kind)
		if err == nil && h.kind == ebpf.CGroupSKB {
			err = loader.TCX()
		}
		switch {
		case errors.Is(err, loader.ErrNoTCX):
			withoutTCX(r, h.lost)
		case err == nil:
			r.add(OK, h.name, "the kernel has %s programs", h.kind)
		case errors.Is(err, ebpf.ErrNotSupported):
			r.add(Warning, h.name, "the kernel has no %s programs: %s; use Linux 6.1 or later with CONFIG_CGROUP_BPF and CONFIG_BPF_STREAM_PARSER",
				h.kind, h.lost)
		default:
			r.add(Warning, h.name, "cannot be asked for: %v; run as root", err)
		}
	}
}

// withoutTCX says whether marks can be written the older way. Whether something is in its way at an interface only attaching
// shows.
func withoutTCX(r *report, lost string) {
	if err := loader.Clsact(); err != nil {
		r.add(Warning, "marks", "%v: %s; use a kernel with CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF and CONFIG_NET_CLS_ACT, or Linux 6.6 or later", err, lost)
		return
	}
	r.add(OK, "marks", "the kernel has no tcx; filters of clsact are used")
}

// algorithms asks the kernel whether it takes the congestion controls that trunkline brings along.
func algorithms(r *report) {
	mode, err := cc.Probe()
	if err != nil {
		r.add(Warning, "struct-ops", "rules cannot name trunkline's own congestion controls: %v", err)
		return
	}
	r.add(OK, "struct-ops", "the kernel takes trunkline's own congestion controls, by %s", mode)
}
