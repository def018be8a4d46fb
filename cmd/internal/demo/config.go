// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trunkline/trunkline/proxy"
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

// site is one end: where its agent's files are, and the agent.
type site struct {
	*lab.Site
	instance string
	dir      string // below the demo's own
	key      string // fingerprint
	agent    *lab.Process
	ended    chan struct{} // closed when the agent has ended
}

func (s *site) config() string { return filepath.Join(s.dir, "trunkline.yaml") }
func (s *site) runDir() string { return filepath.Join(s.dir, "run") }
func (s *site) log() string    { return filepath.Join(s.dir, "agent.log") }

// prepare makes the site's directory and key.
func (s *site) prepare() error {
	for _, d := range []string{s.dir, s.runDir(), filepath.Join(s.dir, "state")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
	}
	id, err := proxy.LoadOrCreateIdentity(filepath.Join(s.dir, "key"))
	if err != nil {
		return fmt.Errorf("making the key of site %s: %w", s.Name, err)
	}
	s.key = id.Fingerprint()
	return nil
}

// writeConfig writes what a person would write for this site. Only site A steers: its peer is reached at an address and
// has its web server allowed there. Site B's rules are the mirror image, since it is the end that sends the file.
func (s *site) writeConfig(other *site, congestion string, windowBytes uint32, historyBytes int64) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# made by trunkline demo for site %s", s.Name)
	line("instance: %s", s.instance)
	line("cgroup: %s", s.CgroupPath)
	line("listen: \"%s:%d\"", s.Addr4, peerPort)
	line("state_dir: %s", filepath.Join(s.dir, "state"))
	line("run_dir: %s", s.runDir())
	line("key: %s", filepath.Join(s.dir, "key"))
	line("dscp: %d", markDSCP)
	line("history: {memory: %d%s}", historyBytes>>20, "MiB")
	line("peers:")
	tuned := fmt.Sprintf("congestion: %s, window: %dMiB, priority: retransmit", congestion, windowBytes>>20)
	if s.Name == "a" {
		line("  - {name: b, address: \"%s:%d\", key: \"%s\"}", other.Addr4, peerPort, other.key)
		tuned += ", dedup: {peer: b, history: web}, splice: force"
	} else {
		line("  - {name: a, key: \"%s\", allow: [\"%s/32:%d\"]}", other.key, s.Addr4, dedupPort)
	}
	line("rules:")
	line("  - {name: direct, remote: %s, ports: [%d], priority: retransmit}", other.Net4, directPort)
	line("  - {name: web, remote: %s, ports: [%d], %s}", other.Net4, dedupPort, tuned)
	if err := os.WriteFile(s.config(), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("writing a configuration: %w", err)
	}
	return nil
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
