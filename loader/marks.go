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
	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/bpf"
)

// codePointWriter is one way of having the code point written where packets leave.
type codePointWriter interface {
	fmt.Stringer // what the way is called
	attach(netlink.Link) (attachment, error)
}

// attachment is the program at one interface.
type attachment interface {
	io.Closer
	stands() bool // false: it is no longer there, though nobody closed it
}

// markState is where the code point is written.
type markState struct {
	writer   codePointWriter    // nil: marks are off
	attached map[int]attachment // by interface index
	names    map[int]string
}

// refusal is an error of which it is known what helps.
type refusal struct{ detail, remedy string }

func (e *refusal) Error() string { return e.detail }

// attachMarks attaches the program that decides about marks, and the one that writes them where packets leave. The first
// without the second would be of no use, so both are loaded before either is attached.
func (l *Loader) attachMarks(context.Context) {
	l.dropStaleFilters()
	var writer codePointWriter
	err := l.attempt(func() error {
		mark, err := l.loadObject(bpf.Mark)
		if err != nil {
			return err
		}
		if writer, err = l.newWriter(); err != nil {
			return err
		}
		return l.attachCgroup(mark, "tl_mark", ebpf.AttachCGroupInetEgress)
	})
	if err != nil {
		detail, remedy := whyNot(err, minKernel)
		if r := (*refusal)(nil); errors.As(err, &r) {
			detail, remedy = r.detail, r.remedy
		}
		l.feature(Feature{Name: "marks", Detail: detail, Remedy: remedy})
		return
	}
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.marks = markState{writer, map[int]attachment{}, map[int]string{}}
	l.onClose(l.detachMarks)
	l.readMarks()
}

// newWriter returns this kernel's way: tcx, whose links go with the process, or clsact where there is none.
func (l *Loader) newWriter() (codePointWriter, error) {
	switch err := TCX(); {
	case l.o.forceClsact || errors.Is(err, ErrNoTCX):
		return l.newClsact()
	case err != nil:
		return nil, err
	}
	return l.newTCX()
}

func (l *Loader) detachMarks() error {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	var errs []error
	for _, c := range l.marks.attached {
		errs = append(errs, c.Close())
	}
	l.marks.attached, l.marks.writer = nil, nil
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
	if l.marks.writer == nil {
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
	if l.marks.writer == nil {
		return
	}
	want, notes := l.markLinks(n)
	for i, a := range l.marks.attached {
		if _, ok := want[i]; !ok || !a.stands() {
			l.dropMarks(i)
		}
	}
	var failed []error
	for _, i := range slices.Sorted(maps.Keys(want)) {
		if _, ok := l.marks.attached[i]; ok {
			l.marks.names[i] = want[i].Attrs().Name
			continue
		}
		if err := l.writeMarks(want[i]); err != nil {
			notes = append(notes, fmt.Sprintf("not on %s: %v", want[i].Attrs().Name, err))
			failed = append(failed, err)
		}
	}
	l.feature(l.marksFeature(notes, failed))
}

// marksFeature says where marks are written, and by what.
func (l *Loader) marksFeature(notes []string, failed []error) Feature {
	names := slices.Sorted(maps.Values(l.marks.names))
	f := Feature{Name: "marks", On: true}
	switch {
	case len(names) > 0:
		f.Detail = fmt.Sprintf("code point %d on %s (%s)", l.o.DSCP, strings.Join(names, ", "), l.marks.writer)
	case len(failed) > 0:
		f.On = false
	case len(l.o.Interfaces) > 0:
		f.On, f.Remedy = false, "correct `interfaces` in the configuration, or leave it out"
	default:
		f.Detail = "no interface has a route to a rule's prefix yet"
	}
	if len(notes) > 0 {
		f.Detail = strings.Join(slices.DeleteFunc(append([]string{f.Detail}, notes...), func(s string) bool { return s == "" }), "; ")
	}
	for _, err := range failed {
		if r := (*refusal)(nil); errors.As(err, &r) && !strings.Contains(f.Remedy, r.remedy) {
			f.Remedy = strings.TrimPrefix(f.Remedy+"; "+r.remedy, "; ")
		}
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
	at, err := l.marks.writer.attach(nl)
	if err != nil {
		return errors.Join(err, l.maps["tl_iface"].Delete(key))
	}
	l.marks.attached[a.Index], l.marks.names[a.Index] = at, a.Name
	l.log.Info("marks are written", "interface", a.Name, "by", l.marks.writer, "l2_bytes", l2)
	return nil
}

// dropMarks stops writing marks on an interface. If that is gone, or someone has detached the program, nothing is left to do
// there.
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
