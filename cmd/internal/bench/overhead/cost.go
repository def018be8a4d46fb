// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench/wire"
)

// cost is what has been spent so far.
type cost struct {
	cpu     time.Duration // by everything in the lab, and by the kernel's threads for packets
	agents  time.Duration // of it by the agents' processes
	packets uint64        // across the wire
}

func (c cost) since(earlier cost) cost {
	return cost{c.cpu - earlier.cpu, c.agents - earlier.agents, c.packets - earlier.packets}
}

// cost reads what the lab has spent. The cgroup's account is of both sites: on a veth the sender's thread does the
// receiver's work too, so the ends cannot be told apart.
func (w *world) cost() (c cost, err error) {
	if c.cpu, err = cgroupCPU(filepath.Dir(w.lab.A.Cgroup)); err != nil {
		return c, err
	}
	for _, tid := range w.softirqd {
		t, err := cpuClock(tid)
		if err != nil {
			return c, fmt.Errorf("reading the CPU time of ksoftirqd: %w", err)
		}
		c.cpu += t
	}
	for _, a := range w.agents() {
		t, err := cpuClock(a.PID())
		if err != nil {
			return c, fmt.Errorf("reading the CPU time of the agent at site %s: %w", a.Site.Name, err)
		}
		c.agents += t
	}
	c.packets, err = wire.Packets(w.lab.A)
	return c, err
}

func cgroupCPU(dir string) (time.Duration, error) {
	path := filepath.Join(dir, "cpu.stat")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading the CPU time in %s: %w", path, err)
			}
			return time.Duration(us) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("%s has no usage_usec: needs Linux 4.15 or later", path)
}

// clockOfProcess is part of the clock id that the kernel makes of a process: see clock_getcpuclockid(3), CPUCLOCK_SCHED.
const clockOfProcess = 2

// cpuClock is the CPU time of another process, to the nanosecond. To the kernel each of its own threads is a process.
func cpuClock(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|clockOfProcess), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

// softirqThreads finds the kernel's threads that take packets over from busy processors; none can be seen from inside a
// container.
func softirqThreads() (tids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(b, []byte("ksoftirqd/")) {
			continue
		}
		if tid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// residentMB is the memory of a process in 10^6 bytes.
func residentMB(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("reading the memory of process %d: %q", pid, b)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / 1e6, err
}
