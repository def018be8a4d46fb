// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RTOSize is how much of its figures a kernel gives that counts time-outs (Linux 6.7).
const RTOSize = unsafe.Offsetof(unix.TCPInfo{}.Total_rto) + unsafe.Sizeof(unix.TCPInfo{}.Total_rto)

// TCPInfo reads a socket's figures, and how many bytes of them this kernel has.
func TCPInfo(fd int) (*unix.TCPInfo, uintptr, error) {
	var info unix.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(&info)),
		uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, 0, os.NewSyscallError("getsockopt TCP_INFO", errno)
	}
	return &info, uintptr(size), nil
}

// Monotonic is the clock that all processes on a machine share, in ns.
func Monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every kernel has it
	}
	return t.Nano()
}

// Wait sleeps until the socket is ready for events, or so many ns.
func Wait(fd int, events int16, ns int64) error {
	t := unix.NsecToTimespec(max(ns, 0))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: events}}, &t, nil)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return os.NewSyscallError("ppoll", err)
}

// The fields of SO_MEMINFO (linux/sock_diag.h).
const (
	memReceived = 0 // SK_MEMINFO_RMEM_ALLOC
	memQueued   = 5 // SK_MEMINFO_WMEM_QUEUED
	memBacklog  = 7 // SK_MEMINFO_BACKLOG
	memFields   = 9
)

// BufferBytes is what a socket's data takes in the kernel: what was received and not read yet, also out of order, and what was
// written and not acknowledged yet, each with what the kernel keeps around it.
func BufferBytes(fd int) (uint64, error) {
	var fields [memFields]uint32
	size := uint32(unsafe.Sizeof(fields))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&fields)),
		uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return uint64(fields[memReceived]) + uint64(fields[memQueued]) + uint64(fields[memBacklog]), nil
}
