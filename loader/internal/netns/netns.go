// SPDX-License-Identifier: Apache-2.0

// Package netns tells network namespaces apart: by the cookie, which the kernel gives once in a boot, and finds those that
// are not this one by the number of their file, which it gives again.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ID is a network namespace. The zero value is none.
type ID struct {
	Cookie uint64 `json:"cookie"`
	Inode  uint64 `json:"inode"`
}

// String is how the namespace's file is called in /proc.
func (id ID) String() string { return fmt.Sprintf("net:[%d]", id.Inode) }

// Current returns the namespace of the calling thread.
func Current() (ID, error) {
	cookie, err := Cookie()
	if err != nil {
		return ID{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return ID{}, fmt.Errorf("looking for the network namespace: %w", err)
	}
	return ID{cookie, st.Ino}, nil
}

// Cookie returns the cookie of the calling thread's network namespace.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("reading the network namespace's cookie: %w; needs Linux 5.14 or later", err)
	}
	return cookie, nil
}

// cookieOf enters the namespace that a file stands for, on a thread that ends with it, and returns its cookie.
func cookieOf(path string) (cookie uint64, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Setns(fd, unix.CLONE_NEWNET); err == nil {
			cookie, err = Cookie()
		}
	}()
	<-done
	return cookie, err
}

// gone says of an error that what was looked at has ended since.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }
