// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"os"
	"strconv"
	"strings"

	"github.com/trunkline/trunkline/cmd/internal/config"
)

// windows looks whether the host's maximum, read from a file of /proc/sys, has room for the rules' fixed windows, or can be
// raised by the agent: outside the initial network namespace it can only be read.
func windows(r *report, c *config.Config, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return // older kernels show it in the initial network namespace only; the agent asks a socket
	}
	most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return
	}
	var need uint32
	var names []string
	for _, rule := range c.Rules {
		if uint64(rule.WindowBytes) > most {
			need = max(need, rule.WindowBytes)
			names = append(names, rule.Name)
		}
	}
	if need == 0 {
		return
	}
	// Opening a sysctl for writing changes nothing.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		r.add(Warning, "window", "net.core.rmem_max is %d and cannot be raised from here, so %s would keep auto-tuning; "+
			"in the initial network namespace: sysctl -w net.core.rmem_max=%d", most, strings.Join(names, ", "), need)
		return
	}
	f.Close()
	r.add(OK, "window", "the agent raises net.core.rmem_max from %d to %d while it runs", most, need)
}
