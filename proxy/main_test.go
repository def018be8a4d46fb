// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/internal/testkit"
)

// Addresses in the tests' own network namespace. Loopback is never reachable through a peer, so servers live on serverAddr.
const (
	nearAddr    = "10.9.0.1"
	farAddr     = "10.9.0.2"
	serverAddr  = "10.9.0.3"
	serverAddr6 = "fd00:9::3"
	otherAddr   = "10.9.0.4" // not in anyone's allow
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	const inside = "TRUNKLINE_TEST_NETNS"
	if os.Getenv(killedFar) != "" { // started by a test, in its namespace
		os.Exit(m.Run())
	}
	if os.Getenv(inside) != "" {
		if err := addresses(); err != nil {
			fmt.Fprintln(os.Stderr, "preparing the network namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "starting in a network namespace:", err)
		os.Exit(1)
	}
}

func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	all := []string{nearAddr + "/32", farAddr + "/32", serverAddr + "/32", otherAddr + "/32"}
	if testkit.IPv6() == nil {
		all = append(all, serverAddr6+"/128")
	}
	for _, a := range all {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = syscall.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return fmt.Errorf("adding %s: %w", a, err)
		}
	}
	return nil
}
