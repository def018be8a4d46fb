// SPDX-License-Identifier: Apache-2.0

package matrix

// known is a feature that a run reports, and what is said of it where it is off.
type known struct {
	name     string
	product  bool   // trunkline's own, as `trunkline status` prints it; else the kernel's, which tests use
	without  string // what a kernel without it costs
	liftedBy string
}

// features are the rows of the matrix in their order. A feature that is not here cannot be expected, so a new one has its
// line here first.
var features = []known{
	{"steering-ipv4", true, "connections of IPv4 sockets are not steered", "a kernel with CONFIG_CGROUP_BPF"},
	{"steering-ipv6", true, "connections of IPv6 sockets are not steered", "as steering-ipv4; a kernel without IPv6 has no such sockets"},
	{"rules", true, "no congestion control, pacing or window by rule", "a kernel with CONFIG_CGROUP_BPF"},
	{"telemetry", true, "no figures of flows", "a kernel with CONFIG_CGROUP_BPF"},
	{"window", true, "receive windows stay as the kernel chose them", "a kernel with CONFIG_CGROUP_BPF"},
	{"marks", true, "retransmissions are not marked", "a kernel with tcx (Linux 6.6, CONFIG_NET_XGRESS) or clsact (CONFIG_NET_SCH_INGRESS, " +
		"CONFIG_NET_CLS_BPF)"},
	{"splice", true, "first bytes go through the loopback TCP stack",
		"a kernel with BTF (CONFIG_DEBUG_INFO_BTF) and CONFIG_BPF_STREAM_PARSER whose sockmap passes the self-test at start: on " +
			"6.1 to 7.3 a blocking read returns EAGAIN at half-close, on 6.12 and 6.18 FIONREAD also reads 0"},
	{"pins", true, "maps are not pinned; `bpftool map dump name` serves", "a bpffs mounted at /sys/fs/bpf"},
	{"struct-ops", true, "no congestion control of trunkline's own; the kernel's modules serve",
		"a kernel with BTF (CONFIG_DEBUG_INFO_BTF) and CONFIG_BPF_JIT"},
	{"btf", false, "the kernel has no types", "CONFIG_DEBUG_INFO_BTF"},
	{"tcx", false, "programs on an interface are attached through clsact", "Linux 6.6 with CONFIG_NET_XGRESS"},
	{"clsact", false, "no programs on an interface without tcx", "CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF"},
	{"struct-ops-link", false, "algorithms are registered without a link, so a killed process leaves its own behind", "Linux 6.4"},
	{"mptcp", false, "no MPTCP, so nothing to tell apart", "CONFIG_MPTCP"},
	{"ipv6", false, "no IPv6", "CONFIG_IPV6"},
	{"netem", false, "no emulated delay and loss in the kernel; tests use the lab's own emulator", "CONFIG_NET_SCH_NETEM"},
	{"htb", false, "no rate limits by class", "CONFIG_NET_SCH_HTB"},
	{"red", false, "no RED queue", "CONFIG_NET_SCH_RED"},
	{"gred", false, "no RED queue by class of packets", "CONFIG_NET_SCH_GRED"},
	{"exact-time", false, "timing depends on the load of the machine", "a virtual machine whose clock counts instructions (`make vmtest`)"},
}

// limit is a limitation that no feature stands for.
type limit struct {
	what, liftedBy string
	before         string // printed while the matrix has a kernel older than this, with the names of those; "": always
	where          string // what is printed for their names
}

var limits = []limit{
	{what: "the first window of a connection is at most 64 KB on sockets of others", before: "6.12",
		liftedBy: "Linux 6.12 (seen there; not looked for between)"},
	{what: "no steering on a kernel that has MPTCP but no BTF", where: "none of these",
		liftedBy: "a kernel with BTF: without types the hook cannot tell MPTCP sockets, which must not be steered"},
	{what: "no windows above `net.core.rmem_max` in a network namespace", where: "all",
		liftedBy: "raising it in the initial one: `sysctl -w net.core.rmem_max=N`"},
}

// featureOf finds a feature by its name.
func featureOf(name string) (known, bool) {
	for _, f := range features {
		if f.name == name {
			return f, true
		}
	}
	return known{}, false
}

func featureNames() []string {
	names := make([]string, len(features))
	for i, f := range features {
		names[i] = f.name
	}
	return names
}
