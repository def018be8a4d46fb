// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// exactVar is what a virtual machine sets whose clock counts instructions: its times do not depend on the host's load.
const exactVar = "TRUNKLINE_TEST_EXACT"

// Machine says where, when and how a report came about.
type Machine struct {
	Bench     string  `json:"bench"`
	Date      string  `json:"date"` // UTC, RFC 3339, of the start
	Trunkline string  `json:"trunkline"`
	Kernel    string  `json:"kernel"` // release
	CPU       string  `json:"cpu"`    // model
	Cores     int     `json:"cores"`
	MemoryMB  float64 `json:"memory_MB"` // 10^6 bytes
	Load      float64 `json:"load"`      // runnable tasks, mean of the last minute before the start
	ExactTime bool    `json:"exact_time"`
	Quick     bool    `json:"quick"`
	Seed      uint64  `json:"seed"`
}

func describeMachine(bench string, o Options) Machine {
	m := Machine{
		Bench: bench, Date: time.Now().UTC().Format(time.RFC3339), Trunkline: o.Version, Kernel: "unknown",
		CPU: cpuModel("/proc/cpuinfo"), Cores: runtime.NumCPU(), ExactTime: os.Getenv(exactVar) == "1", Quick: o.Quick, Seed: o.Seed,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryMB = round(float64(info.Totalram)*float64(info.Unit)/1e6, 0)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// cpuModel is what the kernel calls the processor; arm64 kernels have no name for it.
func cpuModel(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return runtime.GOARCH
}
