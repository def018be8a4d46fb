// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
)

// The services: an echo on each of the first ports, and behind them one that swallows a stream.
const (
	firstPort = 9000
	echoPorts = 4
	bulkPort  = firstPort + echoPorts
	peerPort  = 4820
)

// ServeCommand is the hidden command by which the executable is the server.
const ServeCommand = "bench-serve" // bench-serve ADDRESS

// ServeMain is the command ServeCommand. It prints a line when it listens, and serves until it is killed.
func ServeMain(args []string, stdout io.Writer) error {
	address, err := netip.ParseAddr(args[0])
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	ended := make(chan error)
	for port := firstPort; port <= bulkPort; port++ {
		fd, err := child.Listen(address, port)
		if err != nil {
			return err
		}
		serve := echo
		if port == bulkPort {
			serve = swallow
		}
		for range 2 { // the second takes a connection up while the first waits for the end of the one before
			go func() {
				ended <- child.Accept(fd, func(fd int) {
					_ = serve(fd) // a client that goes away is counted by the client
					_ = unix.Close(fd)
				})
			}()
		}
	}
	fmt.Fprintln(stdout, "ready")
	return <-ended
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
