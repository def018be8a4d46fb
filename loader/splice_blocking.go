// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// checkBlockingRead: an application without non-blocking sockets ends its side and waits in read(2) for the answer. That its
// end is acknowledged meanwhile wakes the reader; some kernels then return EAGAIN to it, which no such application expects.
func checkBlockingRead(p *splicePair) error {
	ended := make(chan error, 1)
	return withFD(p.app, func(fd int) error {
		if err := unix.SetNonblock(fd, false); err != nil {
			return err
		}
		defer unix.SetNonblock(fd, true)
		limit := unix.NsecToTimeval(p.limit().Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		start := time.Now()
		go func() {
			time.Sleep(p.b.bounds.settle) // the reader waits by now
			ended <- unix.Shutdown(fd, unix.SHUT_WR)
			time.Sleep(p.b.bounds.settle)
			_, _ = p.eng.Write([]byte("answer"))
		}()
		n, err := unix.Read(fd, make([]byte, 100))
		took := time.Since(start)
		switch failed := <-ended; {
		case failed != nil:
			return os.NewSyscallError("shutdown", failed)
		case errors.Is(err, unix.EAGAIN) && took < p.limit():
			return errors.New("a blocking read returns EAGAIN")
		case err == nil && n != len("answer"):
			return fmt.Errorf("%d bytes were sent, a blocking read got %d", len("answer"), n)
		}
		return err
	})
}
