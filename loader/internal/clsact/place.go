// SPDX-License-Identifier: Apache-2.0

package clsact

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/loader/internal/netns"
)

// Place is an interface as it was when something was put on it. Names and numbers of interfaces, namespaces and programs
// are given again; all of them together, in one boot, are not.
type Place struct {
	BootID    string   `json:"boot_id"`
	Netns     netns.ID `json:"netns"`
	Index     int      `json:"ifindex"`
	Interface string   `json:"interface"` // its name then: interfaces are renamed
}

// PlaceOf describes an interface of this network namespace.
func PlaceOf(a *netlink.LinkAttrs) (Place, error) {
	id, err := netns.Current()
	if err != nil {
		return Place{}, err
	}
	boot, err := bootID()
	return Place{BootID: boot, Netns: id, Index: a.Index, Interface: a.Name}, err
}

// bootID tells this boot from others.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("telling this boot from others: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// GoneError says that what an interface was part of has ended, and what was put on it with it.
type GoneError struct{ what string }

func (e *GoneError) Error() string { return e.what }

// find returns the interface by its number; *GoneError if there is none, or if its namespace or boot has ended.
func (p Place) find() (netlink.Link, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if boot != p.BootID {
		return nil, &GoneError{"the host has been booted since"}
	}
	here, err := netns.Current()
	if err != nil {
		return nil, err
	}
	if here.Cookie != p.Netns.Cookie {
		return nil, p.elsewhere()
	}
	l, err := netlink.LinkByIndex(p.Index)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, &GoneError{"the interface is gone"}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", p.Interface, err)
	}
	return l, nil
}

// elsewhere says where to go for an interface of another namespace.
func (p Place) elsewhere() error {
	path, err := netns.Find(p.Netns)
	switch {
	case errors.Is(err, netns.ErrGone):
		return &GoneError{err.Error()}
	case err != nil:
		return fmt.Errorf("it is in another network namespace, %s, if that still exists (%w): run `trunkline cleanup` in there with "+
			"nsenter --net=, or as root on the host, where the end of a namespace is seen", p.Netns, err)
	}
	return fmt.Errorf("it is in another network namespace: nsenter --net=%s trunkline cleanup", path)
}
