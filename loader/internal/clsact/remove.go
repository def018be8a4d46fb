// SPDX-License-Identifier: Apache-2.0

package clsact

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Removed says what came of taking something away.
type Removed int

// What may come of it.
const (
	Done   Removed = iota // it is gone by our hand
	Absent                // it was gone already
	Kept                  // it is no longer ours alone, and stays
)

// Remove takes the filter away, and the qdisc with it if that is ours and nobody else has put anything into it.
func (f Filter) Remove() (Removed, string, error) {
	l, err := f.find()
	if outcome, detail, ok := whenGone(err); ok {
		return outcome, detail, nil
	}
	if err != nil {
		return Kept, "", err
	}
	stands, err := f.standsOn(l)
	if err != nil {
		return Kept, "", err
	}
	if !stands {
		return f.absent(l)
	}
	if err := netlink.FilterDel(f.bpf()); err != nil && !gone(err) {
		return Kept, "", fmt.Errorf("deleting the filter: %w", err)
	}
	if !f.OursToRemove() {
		return Done, "", nil
	}
	_, detail, err := removeQdisc(l)
	return Done, detail, err
}

// absent says what is left where the filter is not. Without it nothing shows that a clsact qdisc is the one that was made
// for it; that of someone else might not be missed until its owner needs it, an empty one does nothing.
func (f Filter) absent(l netlink.Link) (Removed, string, error) {
	has, err := HasQdisc(l)
	if err != nil || !has || !f.OursToRemove() {
		return Absent, "", nil
	}
	return Kept, fmt.Sprintf("the filter is not there; the clsact qdisc may be someone else's by now: tc qdisc del dev %s clsact if it is not",
		l.Attrs().Name), nil
}

// RemoveQdisc takes away a clsact qdisc in which no filter of ours has stood yet, if it is empty.
func (p Place) RemoveQdisc() (Removed, string, error) {
	l, err := p.find()
	if outcome, detail, ok := whenGone(err); ok {
		return outcome, detail, nil
	}
	if err != nil {
		return Kept, "", err
	}
	if now := l.Attrs().Name; now != p.Interface {
		return Kept, "the interface of that number is called " + now + " now, and may be another", nil
	}
	return removeQdisc(l)
}

// removeQdisc looks and then deletes: the kernel cannot do both at once. A filter of another instance that comes in between is
// put back by that instance when it looks next.
func removeQdisc(l netlink.Link) (Removed, string, error) {
	has, err := HasQdisc(l)
	if errors.As(err, new(*IngressError)) || err == nil && !has {
		return Absent, "", nil
	}
	if err != nil {
		return Kept, "", err
	}
	none, err := empty(l)
	if err != nil {
		return Kept, "", err
	}
	if !none {
		return Kept, "the clsact qdisc stays: others have put something into it", nil
	}
	err = netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !gone(err) {
		return Kept, "", fmt.Errorf("deleting the clsact qdisc: %w", err)
	}
	return Done, "", nil
}

func whenGone(err error) (Removed, string, bool) {
	var g *GoneError
	if errors.As(err, &g) {
		return Absent, g.what, true
	}
	return Kept, "", false
}

// gone says of the kernel's answer that what was to be deleted has gone in the meantime, with its interface or alone.
func gone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) }
