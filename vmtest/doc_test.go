// SPDX-License-Identifier: Apache-2.0

// Package vmtest holds the integration tests: two sites, an emulated WAN, an agent at each site, real clients and
// servers. They run as root on the running kernel.
package vmtest

import (
	"fmt"
	"os"
	"testing"
)

// roleVar names the part that a child process of the tests plays. Clients are children, since only a process in a
// site's cgroup is steered.
const roleVar = "TRUNKLINE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		f, ok := roles[role]
		if !ok {
			fmt.Fprintf(os.Stderr, "no role %q\n", role)
			os.Exit(2)
		}
		os.Exit(f(os.Args[1:]))
	}
	os.Exit(m.Run())
}
