// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// setBuffer sets SO_RCVBUF or SO_SNDBUF as a program does that needs no privilege, and sees to it that it got what it asked for;
// 0 leaves it to the kernel.
func setBuffer(fd, option, bytes int, sysctl string) error {
	if bytes == 0 {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, bytes); err != nil {
		return os.NewSyscallError("setsockopt of a buffer", err)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return os.NewSyscallError("getsockopt of a buffer", err)
	}
	if got < 2*bytes { // the kernel doubles what is set
		return fmt.Errorf("a socket got a buffer of %d bytes, not the %d that it asked for: raise %s", got/2, bytes, sysctl)
	}
	return nil
}
