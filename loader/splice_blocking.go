// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// checkBlockingRead: an application without non-blocking sockets ends its side and waits in read(2) for the answer. That its
// end is acknowledged meanwhile wakes the reader; some kernels then return EAGAIN to it, which no such application expects.
//
// A reader that does not wait yet, or is not scheduled before the answer comes, would hide that: a busy machine must not
// make a faulty kernel pass.
func checkBlockingRead(p *splicePair) error {
	ended, returned := make(chan error, 1), make(chan struct{})
	runtime.LockOSThread() // it is known by its thread that the reader waits
	defer runtime.UnlockOSThread()
	reader := unix.Gettid()
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
			untilInRead(reader, p.b.bounds, returned)
			ended <- unix.Shutdown(fd, unix.SHUT_WR)
			select {
			case <-returned:
			case <-time.After(20 * p.b.bounds.settle):
			}
			_, _ = p.eng.Write([]byte("answer"))
		}()
		n, err := unix.Read(fd, make([]byte, 100))
		took := time.Since(start)
		close(returned)
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

// untilInRead waits until a thread of this process sleeps in read(2) or has returned, but no longer than half of a check. Where
// /proc does not tell, it is taken to sleep after a while.
func untilInRead(tid int, b spliceBounds, returned <-chan struct{}) {
	in := []byte(strconv.Itoa(unix.SYS_READ) + " ")
	for end := time.Now().Add(b.check / 2); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case <-returned:
			return
		default:
		}
		now, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid)) // "running", or the number and its arguments
		if err != nil {
			time.Sleep(b.settle)
			return
		}
		if bytes.HasPrefix(now, in) {
			return
		}
	}
}
