// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
)

// The addresses of a World. The router is the far side itself; behind it lie the destinations, on no link of the near side.
const (
	NearLink4, RouterLink4 = "10.1.0.1", "10.1.0.2"
	NearLink6, RouterLink6 = "fd01::1", "fd01::2"
	Far4, Far6             = "10.2.0.1", "fd02::1"
)

// World is a far network namespace, joined to the test's own by a veth pair, with default routes to it.
type World struct {
	far  netns.NsHandle
	Near netlink.Link // the near end of the pair
}

// NewWorld creates the far namespace. Only where Isolated is true. Where the kernel has no IPv6, it has IPv4 alone.
func NewWorld(t *testing.T) *World {
	t.Helper()
	w := &World{}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("building the test's network: %v", err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	check(err)
	defer home.Close()
	w.far, err = netns.New() // and enters it
	check(err)
	check(netns.Set(home))
	t.Cleanup(func() { w.far.Close() })

	check(netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far", PeerNamespace: netlink.NsFd(w.far)}))
	w.Near, err = netlink.LinkByName("near")
	check(err)
	check(addAddresses("near", NearLink4+"/24", NearLink6+"/64"))
	var farErr error
	w.InFar(func() {
		farErr = addAddresses("lo", Far4+"/32", Far6+"/128")
		if farErr == nil {
			farErr = addAddresses("far", RouterLink4+"/24", RouterLink6+"/64")
		}
	})
	check(farErr)
	for _, gw := range possible(RouterLink4, RouterLink6) {
		check(netlink.RouteAdd(&netlink.Route{LinkIndex: w.Near.Attrs().Index, Gw: net.ParseIP(gw)}))
	}
	return w
}

func addAddresses(link string, addrs ...string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return err
	}
	for _, a := range possible(addrs...) {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return err
		}
	}
	return nil
}

// possible leaves out IPv6 addresses where the kernel has no IPv6.
func possible(addrs ...string) []string {
	if testkit.IPv6() == nil {
		return addrs
	}
	return slices.DeleteFunc(addrs, func(a string) bool { return strings.Contains(a, ":") })
}

// InFar runs f on a thread in the far namespace. Sockets that f opens stay there.
func (w *World) InFar(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(w.far); err != nil {
			panic(err)
		}
		f()
	}()
	<-done
}

// AsUser runs f on a thread with another user id, which may not come back.
func AsUser(uid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			panic(errno)
		}
		f()
	}()
	<-done
}
