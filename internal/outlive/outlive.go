// SPDX-License-Identifier: Apache-2.0

// Package outlive keeps listeners open for longer than anything else of a process that is killed, so that whoever was
// steered to one just before the hooks went is taken in, and reset, instead of refused.
//
// The kernel lets go of all descriptors of a dying process, and only then of what nothing but those kept open. So the
// hooks, which descriptors hold, go first. Then what lies in the queue of a socket of this package: packet sockets, each
// of which takes a grace period to close, and a second socket, in whose queue lie the listeners. They are thus the last.
package outlive

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Grace periods of RCU that lie between the hooks and the listeners: about 40 ms in all, and more on a busy host. One takes
// about 10 ms, or well below 1 ms where the kernel was told to hurry them.
const (
	graces        = 4
	hurriedGraces = 100
)

// Hold keeps listeners open. The zero Hold keeps none.
type Hold struct{ outer *os.File }

// Keep takes hold of sockets. Without CAP_NET_RAW there are no packet sockets: the order holds, but the time between is
// missing, which the error says beside a Hold that is good.
func Keep(sockets []syscall.RawConn) (Hold, error) {
	if len(sockets) == 0 {
		return Hold{}, nil
	}
	var fds []int
	for _, s := range sockets {
		if err := s.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return Hold{}, fmt.Errorf("using a socket: %w", err)
		}
	}
	inner, err := enclose(fds)
	if err != nil {
		return Hold{}, err
	}
	around := []int{inner}
	defer func() {
		for _, fd := range around {
			_ = unix.Close(fd)
		}
	}()
	var late error
	for range gracesHere() {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // of protocol 0: it receives nothing
		if err != nil {
			late = fmt.Errorf("opening a packet socket, for which CAP_NET_RAW and AF_PACKET are to be allowed: %w", err)
			break
		}
		around = append(around, fd)
	}
	outer, err := enclose(around)
	if err != nil {
		return Hold{}, err
	}
	return Hold{os.NewFile(uintptr(outer), "outlive")}, late
}

// Release lets go. It returns after the grace periods.
func (h Hold) Release() {
	if h.outer != nil {
		_ = h.outer.Close()
	}
}

// gracesHere is how many grace periods this kernel is asked for.
func gracesHere() int {
	if b, err := os.ReadFile("/sys/kernel/rcu_expedited"); err == nil && strings.TrimSpace(string(b)) != "0" {
		return hurriedGraces
	}
	return graces
}

// enclose returns a socket in whose queue references to files lie.
func enclose(fds []int) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a pair of sockets: %w", err)
	}
	defer unix.Close(pair[0])
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
		return -1, errors.Join(fmt.Errorf("passing descriptors: %w", err), unix.Close(pair[1]))
	}
	return pair[1], nil
}
