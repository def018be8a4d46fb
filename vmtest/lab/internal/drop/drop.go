// SPDX-License-Identifier: Apache-2.0

// Package drop loses packets by their number in the kernel, where they come in from an interface.
package drop

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -target bpfel -type tl_drop_rule -type tl_drop_count -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" drop drop.c

// Rule says which packets are lost.
type Rule struct {
	Key         uint64 // of the hash of the packets' numbers
	AfterPassed uint64 // of 1<<32: how likely the packet behind one that passed is lost
	AfterLost   uint64 // and that behind one that was lost
	Run         uint32 // another value than before: packets count from 0 again
	DataOnly    bool   // only TCP segments with payload have numbers and are lost
	Down        bool   // nothing passes
}

// Counts are what came since the program was loaded, without multicast and what is not IP.
type Counts struct {
	Packets   uint64 // lost ones too
	Bytes     uint64 // IP bytes of them
	Lost      uint64
	DownDrops uint64
}

// Dropper is a program with a rule and counts of its own.
type Dropper struct{ objs dropObjects }

// Load loads the program. It loses nothing until Set.
func Load() (*Dropper, error) {
	d := &Dropper{}
	if err := loadDropObjects(&d.objs, nil); err != nil {
		return nil, fmt.Errorf("loading the program that loses packets: %w", err)
	}
	return d, nil
}

// Close unloads the program; where it is attached it stays until the interface goes.
func (d *Dropper) Close() error { return d.objs.Close() }

// Program is what Attach attaches.
func (d *Dropper) Program() *ebpf.Program { return d.objs.TlDrop }

// Set has the rule hold from the next packet on. A packet that comes meanwhile may be judged by parts of both.
func (d *Dropper) Set(r Rule) error {
	v := dropTlDropRule{Key: r.Key, AfterPassed: r.AfterPassed, AfterLost: r.AfterLost, Run: r.Run,
		DataOnly: number(r.DataOnly), Down: number(r.Down)}
	if err := d.objs.TlDropRules.Put(uint32(0), &v); err != nil {
		return fmt.Errorf("setting which packets are lost: %w", err)
	}
	return nil
}

// Counts reads the counters.
func (d *Dropper) Counts() (Counts, error) {
	var v dropTlDropCount
	if err := d.objs.TlDropCounts.Lookup(uint32(0), &v); err != nil {
		return Counts{}, fmt.Errorf("reading how many packets were lost: %w", err)
	}
	return Counts{Packets: v.Packets, Bytes: v.Bytes, Lost: v.Lost, DownDrops: v.DownDrops}, nil
}

// Attach has the program see what comes in from an interface of the calling thread's namespace, until that goes. Through
// clsact, which kernels before tcx have too.
func (d *Dropper) Attach(l netlink.Link) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making a clsact qdisc on %s: %w", l.Attrs().Name, err)
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Priority: 1, Handle: 1, Protocol: unix.ETH_P_ALL},
		Fd: d.objs.TlDrop.FD(), Name: "tl_drop", DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attaching the program that loses packets to %s: %w", l.Attrs().Name, err)
	}
	return nil
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
