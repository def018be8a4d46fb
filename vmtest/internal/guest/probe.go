// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/vmtest/internal/matrix"
)

// kernelFeatures tries what tests need of a kernel beyond what the product asks for.
func kernelFeatures() []matrix.Feature {
	probes := []struct {
		name string
		try  func() error
	}{
		{"btf", haveBTF},
		{"mptcp", func() error { return haveSocket(unix.AF_INET, unix.IPPROTO_MPTCP) }},
		{"ipv6", func() error { return haveSocket(unix.AF_INET6, unix.IPPROTO_TCP) }},
		{"tcx", loader.TCX},
		{"struct-ops-link", haveStructOpsLink},
		{"clsact", func() error { return haveQdisc("clsact", netlink.HANDLE_CLSACT) }},
		{"netem", func() error { return haveQdisc("netem", netlink.HANDLE_ROOT) }},
		{"htb", func() error { return haveQdisc("htb", netlink.HANDLE_ROOT) }},
		{"red", func() error { return haveQdisc("red", netlink.HANDLE_ROOT) }},
		{"gred", func() error { return haveQdisc("gred", netlink.HANDLE_ROOT) }},
		{"exact-time", haveExactTime},
	}
	var features []matrix.Feature
	for _, p := range probes {
		f := matrix.Feature{Name: p.name, On: true}
		if err := p.try(); err != nil {
			f.On, f.Detail = false, err.Error()
		}
		features = append(features, f)
	}
	return features
}

func haveBTF() error {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err
}

func haveStructOpsLink() error {
	mode, err := cc.Probe()
	if err == nil && mode != cc.ByLink {
		err = errors.New("this kernel registers algorithms without a link")
	}
	return err
}

func haveSocket(family, protocol int) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	return unix.Close(fd)
}

func haveExactTime() error {
	if !testkit.Exact() {
		return errors.New("the clock is the host's")
	}
	return nil
}

// haveQdisc puts a discipline on the loopback of a namespace of its own. One that wants parameters says so, and is there.
func haveQdisc(kind string, parent uint32) error {
	err := inOwnNamespace(func(lo netlink.Link) error {
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: kind,
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: lo.Attrs().Index, Parent: parent}})
	})
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func inOwnNamespace(f func(lo netlink.Link) error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		done <- func() error {
			ns, err := netns.New()
			if err != nil {
				return fmt.Errorf("making a network namespace: %w", err)
			}
			defer ns.Close()
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return f(lo)
		}()
	}()
	return <-done
}
