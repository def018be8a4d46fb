// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/trunkline/trunkline/cmd/internal/config"
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
			r.add(Warning, h.name, "%v: %s; use Linux 6.6 or later with CONFIG_NET_XGRESS, or leave it", err, h.lost)
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

// MissingCongestion gives the congestion controls that rules name and this kernel does not offer now, each with the rules
// that name it.
func MissingCongestion(rules []config.Rule) map[string][]string {
	have := availableCongestion()
	missing := map[string][]string{}
	for _, r := range rules {
		if r.Congestion != "" && !slices.Contains(have, r.Congestion) {
			missing[r.Congestion] = append(missing[r.Congestion], "rule "+r.Name)
		}
	}
	return missing
}

func availableCongestion() []string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}
