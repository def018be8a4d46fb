// SPDX-License-Identifier: Apache-2.0

// Package child is what the servers and clients share that benches run as processes of their own: blocking calls without Go's
// poller, so that what is measured is the kernel and the agent more than the load itself.
package child

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Env is a child's environment: it keeps the signals of Go's scheduler out of blocking calls.
func Env() []string { return append(os.Environ(), "GODEBUG=asyncpreemptoff=1") }

// Listen listens on an IPv4 address and speaks plain TCP, never MPTCP, which is not steered. What must be set before, such as
// buffers, prepare sets.
func Listen(address netip.Addr, port int, prepare ...func(fd int) error) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	for _, f := range prepare {
		if err == nil {
			err = f(fd)
		}
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: address.As4(), Port: port})
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		return -1, fmt.Errorf("listening on %s:%d: %w", address, port, err)
	}
	return fd, nil
}

// Accept hands each connection to serve, one after the other, until the listener fails. The connection is serve's to close.
func Accept(listener int, serve func(fd int)) error {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("accept4", err)
		}
		serve(fd)
	}
}
