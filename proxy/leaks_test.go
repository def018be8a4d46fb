// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// openFDs counts this process's descriptors.
func openFDs(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func stacks() string {
	buf := make([]byte, 4<<20)
	return strings.TrimSpace(string(buf[:runtime.Stack(buf, true)]))
}
