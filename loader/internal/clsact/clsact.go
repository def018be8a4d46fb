// SPDX-License-Identifier: Apache-2.0

// Package clsact puts a program at the egress of an interface as a filter of its clsact qdisc, and takes it away again: the
// way of kernels without tcx. Qdisc and filters are shared with everybody, and outlive the process; so whatever is
// done here names exactly what it is done to, and leaves alone what is not recognised in every part.
package clsact

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	kindClsact  = "clsact"
	kindIngress = "ingress"
	kindBPF     = "bpf"

	// handle is that of every filter of ours: "tl". Each has a preference of its own.
	handle = 0x746c

	// Names begin so; the instance follows. The second is given in a qdisc that trunkline made: all its instances see by
	// that whose the qdisc is, and the last one takes it away.
	nameInTheirs = "tl_dscp:"
	nameInOurs   = "tl_dscp+clsact:"

	// Filters are asked by ascending preference, and most end the search; so ours stands before those of others, which
	// it never keeps from being asked. Where they begin below the least, it stands behind.
	usualPriority = 4096
	leastPriority = 16 // who lets the kernel choose is given one less than the first, and that must be left
)

// Filter is one filter of ours, told from all others by every field.
type Filter struct {
	Place
	Priority  uint16 `json:"priority"`
	Handle    uint32 `json:"handle"`
	Name      string `json:"name"`
	ProgramID uint32 `json:"program_id"`
}

// OursToRemove says whether the qdisc goes with the last filter in it.
func (f Filter) OursToRemove() bool { return strings.HasPrefix(f.Name, nameInOurs) }

// IngressError says that there is no room for a clsact qdisc.
type IngressError struct{ Interface string }

func (e *IngressError) Error() string {
	return "an ingress qdisc of someone else is in the place of clsact"
}

// Remedy says what the person can do about it.
func (e *IngressError) Remedy() string {
	return fmt.Sprintf("have who made it use clsact, which takes the same filters (tc qdisc del dev %s ingress; tc qdisc add dev %s clsact), "+
		"or use Linux 6.6 or later", e.Interface, e.Interface)
}

// HasQdisc says whether an interface has a clsact qdisc; *IngressError if something else is in its place.
func HasQdisc(l netlink.Link) (bool, error) {
	qdiscs, err := again(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return false, fmt.Errorf("listing qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		switch {
		case q.Attrs().Parent != netlink.HANDLE_CLSACT:
		case q.Type() == kindIngress:
			return false, &IngressError{l.Attrs().Name}
		case q.Type() == kindClsact:
			return true, nil
		}
	}
	return false, nil
}

// AddQdisc makes a clsact qdisc. An error says so if somebody has just been faster.
func AddQdisc(l netlink.Link) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil {
		return fmt.Errorf("making a clsact qdisc: %w", err)
	}
	return nil
}

// NewFilter chooses a place among the filters at an interface's egress, for a program of an instance. It makes nothing.
// ours says that trunkline has just made the qdisc.
func NewFilter(l netlink.Link, instance string, program *ebpf.Program, ours bool) (Filter, error) {
	info, err := program.Info()
	if err != nil {
		return Filter{}, fmt.Errorf("reading the program's number: %w", err)
	}
	id, _ := info.ID()
	place, err := PlaceOf(l.Attrs())
	if err != nil {
		return Filter{}, err
	}
	there, err := list(l.Attrs().Index, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return Filter{}, err
	}
	name := nameInTheirs
	if ours || slices.ContainsFunc(there, func(e entry) bool { return strings.HasPrefix(e.name, nameInOurs) }) {
		name = nameInOurs
	}
	return Filter{Place: place, Priority: freePriority(there), Handle: handle, Name: name + instance, ProgramID: uint32(id)}, nil
}

// freePriority returns one that nobody has, before all others that there are.
func freePriority(there []entry) uint16 {
	taken, first := map[uint16]bool{}, uint16(usualPriority+1)
	mine := map[uint16]bool{}
	for _, e := range there {
		taken[e.priority] = true
		mine[e.priority] = mine[e.priority] || strings.HasPrefix(e.name, nameInTheirs) || strings.HasPrefix(e.name, nameInOurs)
	}
	for p := range taken {
		if !mine[p] {
			first = min(first, p)
		}
	}
	for p := first - 1; p >= leastPriority && p < first; p-- {
		if !taken[p] {
			return p
		}
	}
	p := max(first, leastPriority)
	for taken[p] {
		p++
	}
	return p
}

// Add puts the filter in its place. An error says so if somebody has just taken it.
func (f Filter) Add(program *ebpf.Program) error {
	b := f.bpf()
	b.Fd, b.Name, b.DirectAction = program.FD(), f.Name, true
	if err := netlink.FilterAdd(b); err != nil {
		return fmt.Errorf("adding a filter at preference %d: %w", f.Priority, err)
	}
	return nil
}

func (f Filter) bpf() *netlink.BpfFilter {
	return &netlink.BpfFilter{Fd: -1, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: f.Index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: f.Priority, Handle: f.Handle, Protocol: unix.ETH_P_ALL}}
}

// Stands says whether the filter is in its place. An error says that it cannot be known; *GoneError that it cannot be.
func (f Filter) Stands() (bool, error) {
	l, err := f.find()
	if err != nil {
		return false, err
	}
	return f.standsOn(l)
}

func (f Filter) standsOn(l netlink.Link) (bool, error) {
	// The egress of an ingress qdisc would be its ingress.
	if clsact, err := HasQdisc(l); err != nil || !clsact {
		if errors.As(err, new(*IngressError)) {
			err = nil
		}
		return false, err
	}
	there, err := list(f.Index, netlink.HANDLE_MIN_EGRESS)
	return slices.Contains(there, entry{f.Priority, f.Handle, 0, kindBPF, f.Name, f.ProgramID}), err
}
