// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/bpf"
)

// markState is where the code point is written.
type markState struct {
	dscp     *ebpf.Program     // nil: marks are off
	attached map[int]io.Closer // by interface index
	names    map[int]string
}

// attachMarks attaches the program that decides about marks, and the one that writes them where packets leave. The first
// without the second would be of no use, so both are loaded before either is attached, and neither where there is no tcx.
func (l *Loader) attachMarks(context.Context) {
	if err := TCX(); err != nil {
		l.feature(Feature{Name: "marks", Detail: err.Error(), Remedy: "needs Linux 6.6 or later with CONFIG_NET_XGRESS; nothing else does"})
		return
	}
	var dscp *ebpf.Collection
	err := l.attempt(func() error {
		mark, err := l.loadObject(bpf.Mark)
		if err != nil {
			return err
		}
		if dscp, err = l.loadObject(bpf.DSCP); err != nil {
			return err
		}
		return l.attachCgroup(mark, "tl_mark", ebpf.AttachCGroupInetEgress)
	})
	if err != nil {
		detail, remedy := whyNot(err, minKernel)
		l.feature(Feature{Name: "marks", Detail: detail, Remedy: remedy})
		return
	}
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.marks.dscp = dscp.Programs["tl_dscp"]
	l.marks.attached, l.marks.names = map[int]io.Closer{}, map[int]string{}
	l.onClose(l.detachMarks)
	l.readMarks()
}

func (l *Loader) detachMarks() error {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	var errs []error
	for _, c := range l.marks.attached {
		errs = append(errs, c.Close())
	}
	l.marks.attached, l.marks.dscp = nil, nil
	return errors.Join(errs...)
}

// refreshMarks follows changes of links and routes.
func (l *Loader) refreshMarks(n network) {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.syncMarks(n)
}

// readMarks follows changes of rules.
func (l *Loader) readMarks() {
	if l.marks.dscp == nil {
		return
	}
	n, err := readNetwork()
	if err != nil {
		l.log.Warn("finding interfaces for marks", "err", err)
		return
	}
	l.syncMarks(n)
}

// syncMarks brings the interfaces on which marks are written up to date with links, routes and rules.
func (l *Loader) syncMarks(n network) {
	if l.marks.dscp == nil {
		return
	}
	want, notes := l.markLinks(n)
	for i := range l.marks.attached {
		if _, ok := want[i]; !ok {
			l.dropMarks(i)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(want)) {
		if _, ok := l.marks.attached[i]; ok {
			l.marks.names[i] = want[i].Attrs().Name
			continue
		}
		err := l.writeMarks(want[i])
		if err != nil {
			notes = append(notes, fmt.Sprintf("not on %s: %v", want[i].Attrs().Name, err))
		}
	}
	l.feature(l.marksFeature(notes))
}

// marksFeature says where marks are written.
func (l *Loader) marksFeature(notes []string) Feature {
	names := slices.Sorted(maps.Values(l.marks.names))
	f := Feature{Name: "marks", On: true}
	switch {
	case len(names) > 0:
		f.Detail = fmt.Sprintf("code point %d on %s", l.o.DSCP, strings.Join(names, ", "))
	case len(l.o.Interfaces) > 0:
		f.On, f.Remedy = false, "correct `interfaces` in the configuration, or leave it out"
	default:
		f.Detail = "no interface has a route to a rule's prefix yet"
	}
	if len(notes) > 0 {
		f.Detail = strings.Join(slices.DeleteFunc(append([]string{f.Detail}, notes...), func(s string) bool { return s == "" }), "; ")
	}
	return f
}

// writeMarks has marks written on one interface. The program looks its interface up, so the entry comes first.
func (l *Loader) writeMarks(nl netlink.Link) error {
	a := nl.Attrs()
	l2, err := headerBytes(a.EncapType)
	if err != nil {
		return err
	}
	key := uint32(a.Index)
	if err := l.maps["tl_iface"].Update(key, bpf.Iface{L2Bytes: l2}, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("entering the interface: %w", err)
	}
	lk, err := link.AttachTCX(link.TCXOptions{Interface: a.Index, Program: l.marks.dscp, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return errors.Join(fmt.Errorf("attaching to its egress: %w", err), l.maps["tl_iface"].Delete(key))
	}
	l.marks.attached[a.Index], l.marks.names[a.Index] = lk, a.Name
	l.log.Info("marks are written", "interface", a.Name, "l2_bytes", l2)
	return nil
}

// dropMarks stops writing marks on an interface; the kernel has detached the program already if the interface is gone.
func (l *Loader) dropMarks(index int) {
	if err := l.marks.attached[index].Close(); err != nil {
		l.log.Warn("detaching from an interface", "interface", l.marks.names[index], "err", err)
	}
	l.unlessAbsent("forgetting an interface", l.maps["tl_iface"].Delete(uint32(index)))
	delete(l.marks.attached, index)
	delete(l.marks.names, index)
}

// headerBytes returns the length of the link header in front of the IP header at egress.
func headerBytes(encap string) (uint32, error) {
	switch encap {
	case "ether":
		return 14, nil
	case "none", "rawip", "ppp", "tunnel", "tunnel6", "sit", "gre", "gre6": // their headers are put on later
		return 0, nil
	}
	return 0, fmt.Errorf("link type %q: where the IP header begins is not known", encap)
}

// markLinks returns the interfaces on which marks are to be written, by index, and notes on those that cannot be.
func (l *Loader) markLinks(n network) (map[int]netlink.Link, []string) {
	want := map[int]netlink.Link{}
	var notes []string
	if len(l.o.Interfaces) == 0 {
		for i := range n.towards(l.markedPrefixes()) {
			if nl := n.links[i]; nl != nil && nl.Attrs().Flags&net.FlagLoopback == 0 {
				want[i] = nl
			}
		}
		return want, nil
	}
	for _, name := range l.o.Interfaces {
		found := false
		for i, nl := range n.links {
			if nl.Attrs().Name == name && nl.Attrs().Flags&net.FlagLoopback == 0 {
				want[i], found = nl, true
			}
		}
		if !found {
			notes = append(notes, "there is no interface "+name)
		}
	}
	return want, notes
}
