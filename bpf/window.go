// SPDX-License-Identifier: Apache-2.0

package bpf

import "net/netip"

// WindowMode says who decides on a flow's windows.
type WindowMode uint8

// The modes of windows.
const (
	WindowKernel   = WindowMode(layoutTlWindowTL_WINDOW_KERNEL)
	WindowFixed    = WindowMode(layoutTlWindowTL_WINDOW_FIXED)
	WindowAuto     = WindowMode(layoutTlWindowTL_WINDOW_AUTO)
	WindowReserved = WindowMode(layoutTlWindowTL_WINDOW_RESERVED)
)

// String returns the mode's name in tables and JSON.
func (m WindowMode) String() string {
	switch m {
	case WindowFixed:
		return "fixed"
	case WindowAuto:
		return "auto"
	case WindowReserved:
		return "reserved"
	}
	return "kernel"
}

// WindowWhy says why a flow has not all that the mode of its window gives.
type WindowWhy uint8

// windowWhys are for people; what has all is the empty string.
var windowWhys = map[WindowWhy]string{
	WindowWhy(layoutTlWindowWhyTL_WHY_NEAR):       "the other end is this host or on-link, where nothing is set",
	WindowWhy(layoutTlWindowWhyTL_WHY_NONE):       "no reservation is in force for the other end",
	WindowWhy(layoutTlWindowWhyTL_WHY_ENDED):      "its reservation has ended",
	WindowWhy(layoutTlWindowWhyTL_WHY_NO_ROOM):    "the host's net.core.rmem_max is below the window",
	WindowWhy(layoutTlWindowWhyTL_WHY_UNMEASURED): "nothing was known of its path when it began: the kernel's initial window",
	WindowWhy(layoutTlWindowWhyTL_WHY_BLOATED):    "round trips on its path take long for queues: the kernel's initial window",
	WindowWhy(layoutTlWindowWhyTL_WHY_LOSSY):      "its path loses packets: the kernel's initial window",
	WindowWhy(layoutTlWindowWhyTL_WHY_LATE):       "it began before the reservation: paced, without an initial window",
}

// String says it in words, "" for a flow that has all.
func (w WindowWhy) String() string { return windowWhys[w] }

// ReservedPrefixFrom returns a prefix as tl_reserved_net holds it: masked, and an IPv4 prefix 96 bits longer.
func ReservedPrefixFrom(p netip.Prefix) ReservedPrefix {
	k := PrefixFrom(p)
	return ReservedPrefix{Prefixlen: k.Prefixlen, Addr: k.Addr.B}
}
