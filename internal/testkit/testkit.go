// SPDX-License-Identifier: Apache-2.0

// Package testkit holds what tests of all rooms agree on: how large they are on a slow machine, how long they wait, and for
// what alone they may be skipped.
//
// Virtual machines without hardware support run the same tests some twenty times slower. One factor, TRUNKLINE_TEST_SCALE,
// divides sizes and counts and multiplies bounds of waiting; it never changes what a test asserts.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The environment that a runner sets.
const (
	ScaleVar = "TRUNKLINE_TEST_SCALE" // whole number, 1 where nothing is shrunk
	ExactVar = "TRUNKLINE_TEST_EXACT" // 1 where the clock counts instructions, so that no load of the host is seen
)

// Scale returns the factor, 1 on the host.
func Scale() int {
	n, err := strconv.Atoi(os.Getenv(ScaleVar))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// Size shrinks a number of bytes, but not below least: what the test needs in order to see what it looks for.
func Size(bytes, least int64) int64 { return max(bytes/int64(Scale()), min(bytes, least)) }

// Count shrinks a number of connections, rounds and the like, but not below least.
func Count(n, least int) int { return max(n/Scale(), min(n, least)) }

// Wait lengthens a bound of waiting.
func Wait(d time.Duration) time.Duration { return d * time.Duration(Scale()) }

// Exact says whether the clock counts instructions.
func Exact() bool { return os.Getenv(ExactVar) == "1" }

// NeedRoot skips a test that builds namespaces, cgroups and BPF programs.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces, cgroups, BPF")
	}
}

// SkipPrefix begins the reason of every skip that a kernel causes; the runner reads it.
const SkipPrefix = "kernel feature "

// NeedFeature skips a test for a feature that this kernel lacks, if why is not nil: its name as `trunkline status` or the
// runner prints it, and why it is off. A runner that expects the feature of the kernel counts the skip as a failure.
func NeedFeature(t testing.TB, name string, why error) {
	t.Helper()
	if why != nil {
		t.Skipf("%s%s: %v", SkipPrefix, name, why)
	}
}

// IPv6 says why there can be no IPv6 sockets; nil: there can.
func IPv6() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening an IPv6 socket: %w", err)
	}
	return unix.Close(fd)
}

// NeedIPv6 skips a test of IPv6 on a kernel that is built or booted without it.
func NeedIPv6(t testing.TB) {
	t.Helper()
	NeedFeature(t, "ipv6", IPv6())
}

// NeedMPTCP skips a test of Multipath TCP on a kernel that is built without it.
func NeedMPTCP(t testing.TB) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_MPTCP)
	if err == nil {
		_ = unix.Close(fd)
	}
	NeedFeature(t, "mptcp", err)
}

// NeedTime skips a test that judges rates or durations on a machine that is too slow for it, unless its clock counts
// instructions.
func NeedTime(t testing.TB) {
	t.Helper()
	if Scale() > 1 && !Exact() {
		NeedFeature(t, "exact-time", errors.New("this slow machine's clock is that of its host"))
	}
}

// NeedProgram returns the path of a program. One that is missing fails the test: it would otherwise pass on every machine
// that is not set up.
func NeedProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; install what tests need with `make deps`", err)
	}
	return path
}
