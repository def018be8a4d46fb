// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The services: an echo on each of the first ports, and behind them one that swallows a stream.
const (
	firstPort = 9000
	echoPorts = 4
	bulkPort  = firstPort + echoPorts
	peerPort  = 4820
)

// ServeCommand is the hidden command by which the executable is the server: blocking calls without Go's poller, so that
// what is measured is the kernel and the agent more than the load itself.
const ServeCommand = "bench-serve" // bench-serve ADDRESS

// ServeMain is the command ServeCommand. It prints a line when it listens, and serves until it is killed.
func ServeMain(args []string, stdout io.Writer) error {
	address, err := netip.ParseAddr(args[0])
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	ended := make(chan error)
	for port := firstPort; port <= bulkPort; port++ {
		fd, err := listen(address, port)
		if err != nil {
			return err
		}
		serve := echo
		if port == bulkPort {
			serve = swallow
		}
		for range 2 { // the second takes a connection up while the first waits for the end of the one before
			go func() { ended <- accept(fd, serve) }()
		}
	}
	fmt.Fprintln(stdout, "ready")
	return <-ended
}

// listen speaks plain TCP, never MPTCP, which is not steered.
func listen(address netip.Addr, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: address.As4(), Port: port})
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		return -1, fmt.Errorf("listening on %s:%s: %w", address, strconv.Itoa(port), err)
	}
	return fd, nil
}

func accept(listener int, serve func(fd int) error) error {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("accept4", err)
		}
		_ = serve(fd) // a client that goes away is counted by the client
		_ = unix.Close(fd)
	}
}

// echo sends one byte back and waits for the client's end.
func echo(fd int) error {
	var b [1]byte
	n, err := read(fd, b[:])
	if err != nil || n == 0 {
		return err
	}
	if err := writeAll(fd, b[:]); err != nil {
		return err
	}
	_, err = read(fd, b[:])
	return err
}

// swallow reads to the end and says how much it was.
func swallow(fd int) error {
	buf := make([]byte, chunk)
	var total uint64
	for {
		n, err := read(fd, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return writeAll(fd, binary.BigEndian.AppendUint64(nil, total))
		}
		total += uint64(n)
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if !errors.Is(err, unix.EINTR) {
			return n, os.NewSyscallError("read", err)
		}
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}
