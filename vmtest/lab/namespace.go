// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace together with the cgroup that its processes run in.
type Namespace struct {
	// Cgroup is the absolute path of the cgroup; CgroupPath the same below the cgroup2 mount, as the agent's
	// configuration wants it.
	Cgroup, CgroupPath string

	lab      *Lab
	netns    *os.File
	cgroupFD int
	jobs     chan func() // run one after the other on the namespace's own thread
	done     chan struct{}
}

// newNamespace makes a namespace with a thread that stays in it until close. Children are started by that thread
// only, since the parent-death signal is tied to the thread that forked, not to the process.
func (l *Lab) newNamespace(cg *cgroup) (*Namespace, error) {
	fd, err := unix.Open(cg.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening cgroup %s: %w", cg.dir, err)
	}
	n := &Namespace{Cgroup: cg.dir, CgroupPath: cg.below, lab: l, cgroupFD: fd,
		jobs: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go n.thread(ready)
	if err := <-ready; err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	l.mu.Lock()
	l.namespaces = append(l.namespaces, n)
	l.mu.Unlock()
	return n, nil
}

func (n *Namespace) thread(ready chan<- error) {
	// Never unlocked: a thread in another namespace must not serve other goroutines, so it ends with this one.
	runtime.LockOSThread()
	defer close(n.done)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		ready <- fmt.Errorf("making a network namespace (are you root?): %w", err)
		return
	}
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		ready <- fmt.Errorf("holding the network namespace: %w", err)
		return
	}
	n.netns = f
	ready <- nil
	for job := range n.jobs {
		job()
	}
}

// onThread runs f on the namespace's own thread and waits for it. f must be quick.
func (n *Namespace) onThread(f func() error) error {
	res := make(chan error, 1)
	n.jobs <- func() { res <- f() }
	return <-res
}

func (n *Namespace) close() {
	close(n.jobs)
	<-n.done
	_ = n.netns.Close()
	_ = unix.Close(n.cgroupFD)
}

// Do runs f in the network namespace, on a thread of its own, and waits for it. Sockets made by f itself stay in the
// namespace; goroutines started by f do not run in it. Do does not enter the cgroup: what must be seen by programs
// attached there has to be a child process.
func (n *Namespace) Do(f func() error) error {
	res := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, see thread
		defer close(res)       // f may leave by runtime.Goexit, as t.FailNow does
		if err := unix.Setns(int(n.netns.Fd()), unix.CLONE_NEWNET); err != nil {
			res <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		res <- f()
	}()
	err, ok := <-res
	if !ok {
		return errors.New("the function did not return")
	}
	return err
}

// Listen opens a plain TCP (never MPTCP) or unix listener in the namespace.
func (n *Namespace) Listen(network, address string) (ln net.Listener, err error) {
	err = n.Do(func() error {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(context.Background(), network, address)
		return err
	})
	return ln, err
}

// Dial connects from the namespace to a literal address.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.Do(func() error {
		var d net.Dialer
		d.SetMultipathTCP(false)
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// NetnsPath names the namespace for nsenter --net and the like, while this process lives.
func (n *Namespace) NetnsPath() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.netns.Fd())
}
