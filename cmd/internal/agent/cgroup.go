// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

// outside says what is lost if this process is not in the configured cgroup: the hooks see only what is below it, so the
// legs, which are this process's, get neither marks nor figures. Empty: it is inside, or has no peers and so no legs.
func outside(c *config.Config, self string) string {
	if len(c.Peers) == 0 || self == "" || self == c.Cgroup || strings.HasPrefix(self, strings.TrimSuffix(c.Cgroup, "/")+"/") {
		return ""
	}
	return fmt.Sprintf("the agent runs in cgroup %s, outside %s: its connections to peers are not marked and not in `trunkline flows`; "+
		"start it below %s, or configure a cgroup above both", self, c.Cgroup, c.Cgroup)
}

// ownCgroup is the cgroup2 path of this process; empty if it cannot be told, as in a cgroup namespace of another root.
func ownCgroup() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			if path = strings.TrimSpace(path); !strings.HasPrefix(path, "/..") {
				return path
			}
		}
	}
	return ""
}
