// SPDX-License-Identifier: Apache-2.0

package clsact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// entry is one line of a dump of filters. Each preference has a line of its own too, without a handle, even when no filter
// is left there.
type entry struct {
	priority  uint16 // preference, as tc calls it
	handle    uint32
	chain     uint32
	kind      string
	name      string // of kind bpf
	programID uint32 // of kind bpf
}

// list returns every filter at one side of an interface, whatever its kind. It does not use the library's, which leaves
// out what it cannot read: a qdisc is only empty if there is nothing at all.
func list(index int, parent uint32) ([]entry, error) {
	msgs, err := again(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
	})
	if err != nil {
		return nil, fmt.Errorf("listing filters: %w", err)
	}
	var out []entry
	for _, m := range msgs {
		e, err := parse(m)
		if err != nil {
			return nil, fmt.Errorf("reading a filter: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

func parse(m []byte) (entry, error) {
	msg := nl.DeserializeTcMsg(m)
	e := entry{priority: uint16(msg.Info >> 16), handle: msg.Handle}
	attrs, err := nl.ParseRouteAttr(m[msg.Len():])
	if err != nil {
		return e, err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			e.kind = text(a.Value)
		case nl.TCA_CHAIN:
			e.chain = binary.NativeEndian.Uint32(a.Value)
		}
	}
	if e.kind != kindBPF {
		return e, nil
	}
	for _, a := range attrs {
		if a.Attr.Type != nl.TCA_OPTIONS {
			continue
		}
		options, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return e, err
		}
		for _, o := range options {
			switch o.Attr.Type {
			case nl.TCA_BPF_NAME:
				e.name = text(o.Value)
			case nl.TCA_BPF_ID:
				e.programID = binary.NativeEndian.Uint32(o.Value)
			}
		}
	}
	return e, nil
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// empty says whether nobody has anything in a clsact qdisc: no filter and no chain, at neither side.
func empty(nl netlink.Link) (bool, error) {
	for _, side := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := list(nl.Attrs().Index, side)
		if err != nil || len(filters) > 0 {
			return false, err
		}
		chains, err := again(func() ([]netlink.Chain, error) { return netlink.ChainList(nl, side) })
		if err != nil {
			return false, fmt.Errorf("listing chains: %w", err)
		}
		if slices.ContainsFunc(chains, func(c netlink.Chain) bool { return c.Chain != 0 }) {
			return false, nil
		}
	}
	return true, nil
}

// again repeats a dump that a change interrupted.
func again[T any](dump func() ([]T, error)) (out []T, err error) {
	for range 8 {
		if out, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return out, err
}
