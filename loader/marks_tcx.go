// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/bpf"
)

// tcx attaches by a link, which goes with the process: nothing needs to be written down.
type tcx struct{ dscp *ebpf.Program }

func (l *Loader) newTCX() (codePointWriter, error) {
	coll, err := l.loadObject(bpf.DSCP)
	if err != nil {
		return nil, err
	}
	return tcx{coll.Programs["tl_dscp"]}, nil
}

func (tcx) String() string { return "tcx" }

func (w tcx) attach(l netlink.Link) (attachment, error) {
	lk, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: w.dscp, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return nil, fmt.Errorf("attaching to its egress: %w", err)
	}
	return tcxLink{lk}, nil
}

type tcxLink struct{ link.Link }

// stands is false when the link has lost its interface.
func (l tcxLink) stands() bool {
	info, err := l.Info()
	return err != nil || info.TCX() == nil || info.TCX().Ifindex != 0
}
