// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/vmtest/lab"
)

const (
	// markDSCP is AF11, the agent's default.
	markDSCP = 10
	// windowLeast and windowMost bound the demo's window, in bytes. The least is plenty for the default WAN.
	windowLeast = 1 << 20
	windowMost  = 64 << 20
)

// windowFor is the window that the demo's rule gives, in bytes: room for what is on a WAN of a rate (bits per second) and
// round-trip time, for its queue of the same size, and for the kernel's bookkeeping.
func windowFor(rate uint64, rtt time.Duration) uint32 {
	bdp := float64(rate) / 8 * rtt.Seconds()
	size := windowLeast
	for float64(size) < 4*bdp && size < windowMost {
		size *= 2
	}
	return uint32(size)
}

// site is one end and its agent.
type site struct {
	*lab.Site
	agent *labagent.Agent
}

// configure writes what a person would write for this site. Only site A steers: its peer is reached at an address and
// has its web server allowed there. Site B's rules are the mirror image, since it is the end that sends the file.
func (s *site) configure(other *site, congestion string, windowBytes uint32, historyBytes int64) error {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	line("# made by trunkline demo for site %s", s.Name)
	line("listen: \"%s:%d\"", s.Addr4, peerPort)
	line("dscp: %d", markDSCP)
	line("history: {memory: %d%s}", historyBytes>>20, "MiB")
	line("peers:")
	tuned := fmt.Sprintf("congestion: %s, window: %dMiB, priority: retransmit", congestion, windowBytes>>20)
	if s.Name == "a" {
		line("  - {name: b, address: \"%s:%d\", key: \"%s\"}", other.Addr4, peerPort, other.agent.Key)
		tuned += ", dedup: {peer: b, history: web}, splice: force"
	} else {
		line("  - {name: a, key: \"%s\", allow: [\"%s/32:%d\"]}", other.agent.Key, s.Addr4, dedupPort)
	}
	line("rules:")
	line("  - {name: direct, remote: %s, ports: [%d], priority: retransmit}", other.Net4, directPort)
	line("  - {name: web, remote: %s, ports: [%d], %s}", other.Net4, dedupPort, tuned)
	return s.agent.Configure(lines...)
}

// bestCongestion is bbr where the kernel has it: it bears the loss of the demo's WAN.
func bestCongestion() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err == nil {
		for _, name := range strings.Fields(string(b)) {
			if name == "bbr" {
				return name
			}
		}
	}
	return "cubic"
}
