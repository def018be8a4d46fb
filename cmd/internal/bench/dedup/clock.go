// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what the calling thread has used of a processor so far: what getrusage(RUSAGE_THREAD) tells, in ns instead of us.
// The caller has locked itself to its thread.
func cpuTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0 // cannot be: the clock is as old as threads are
	}
	return time.Duration(t.Nano())
}

// timed is the CPU time that f takes.
func timed(f func()) time.Duration {
	start := cpuTime()
	f()
	return cpuTime() - start
}

// speedMBps is 10^6 bytes a second; 0 where the time was too short to tell.
func speedMBps(bytes int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(bytes) / 1e6 / took.Seconds()
}
