// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"fmt"
	"os"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/bench/wire"
)

// setting is one way to run the host; each has everything of the one before it, as far as that is possible.
type setting struct {
	name string
	what string // for the table
	need string // feature of the agent without which there is nothing to measure
	rule string // further keys of the near agent's rule; %s is its cgroup
	near bool   // an agent runs where the clients are
	peer bool   // and one at the far site
}

const historyLine = "history: {memory: 64MiB}" // small machines run this too

const dedupKeys = ", priority: retransmit, dedup: {peer: b}"

// settings; the first is what the others are compared with.
var settings = []setting{
	{name: "none", what: "no agent"},
	{name: "rules", what: "a rule with the congestion control that the host has anyway", need: "rules", near: true},
	{name: "marks", what: "and marks on retransmissions", need: "marks", near: true, rule: ", priority: retransmit"},
	{name: "excluded", what: "and a dedup rule that excludes the clients: direct, through every hook", need: "steering-ipv4",
		near: true, peer: true, rule: dedupKeys + ", exclude_cgroups: [%s]"},
	{name: "steered", what: "through the engine and its peer", need: "steering-ipv4", near: true, peer: true,
		rule: dedupKeys + ", splice: off"},
	{name: "spliced", what: "the same, with the fast path on loopback forced", need: "splice", near: true, peer: true,
		rule: dedupKeys + ", splice: force"},
}

func settingNames() []string {
	names := make([]string, len(settings))
	for i := range settings {
		names[i] = settings[i].name
	}
	return names
}

// nearConfig is the configuration of the agent where the clients are.
func (s *setting) nearConfig(cgroup, peerKey string) []string {
	rule := s.rule
	if strings.Contains(rule, "%s") {
		rule = fmt.Sprintf(rule, cgroup)
	}
	lines := []string{historyLine}
	if s.peer {
		lines = append(lines, "peers:", fmt.Sprintf(`  - {name: b, address: "%s:%d", key: "%s"}`, wire.Service, peerPort, peerKey))
	}
	return append(lines, "rules:", fmt.Sprintf("  - {name: bench, remote: %s, ports: [%d-%d], congestion: %s%s}",
		wire.ServiceNet, firstPort, bulkPort, hostCongestion(), rule))
}

// farConfig is that of its peer, next to the services.
func farConfig(peerKey string) []string {
	return []string{
		historyLine, fmt.Sprintf(`listen: "%s:%d"`, wire.Service, peerPort), "peers:",
		fmt.Sprintf(`  - {name: a, key: "%s", allow: ["%s/32:%d-%d"]}`, peerKey, wire.Service, firstPort, bulkPort),
	}
}

// hostCongestion is the host's default, so that a rule costs what it costs and changes nothing else.
func hostCongestion() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return "cubic"
	}
	return strings.TrimSpace(string(b))
}
