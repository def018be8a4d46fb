// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rtoSize is how much of its figures a kernel gives that counts time-outs (Linux 6.7).
const rtoSize = unsafe.Offsetof(unix.TCPInfo{}.Total_rto) + unsafe.Sizeof(unix.TCPInfo{}.Total_rto)

// tcpInfo reads a socket's figures, and how many bytes of them this kernel has.
func tcpInfo(fd int) (*unix.TCPInfo, uintptr, error) {
	var info unix.TCPInfo
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(&info)),
		uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, 0, os.NewSyscallError("getsockopt TCP_INFO", errno)
	}
	return &info, uintptr(size), nil
}

// monotonic is the clock that all processes on a machine share, in ns.
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every kernel has it
	}
	return t.Nano()
}

// wait sleeps until the socket is ready for events, or so many ns.
func wait(fd int, events int16, ns int64) error {
	t := unix.NsecToTimespec(max(ns, 0))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: events}}, &t, nil)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return os.NewSyscallError("ppoll", err)
}
