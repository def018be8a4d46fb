// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/clsact"
	"github.com/trunkline/trunkline/loader/ledger"
)

// clsactFilters attaches by filters of clsact, on kernels without tcx. They outlive the process, so each is written down
// first. What they run is tl_clsact, which calls the program that writes only while this process lives (bpf/gate.c).
type clsactFilters struct {
	gate     *ebpf.Program
	instance string
	ledger   *ledger.Ledger
	log      *slog.Logger
}

func (l *Loader) newClsact() (codePointWriter, error) {
	if l.o.Ledger == nil {
		return nil, &refusal{"the kernel has no tcx, and there is no ledger to write filters of clsact down in", "give the agent a state directory"}
	}
	dscp, err := l.loadObject(func() (*ebpf.CollectionSpec, error) {
		spec, err := bpf.DSCP()
		if err == nil {
			spec.Programs["tl_dscp"].AttachType = ebpf.AttachNone // the section names tcx
		}
		return spec, err
	})
	if err != nil {
		return nil, err
	}
	gate, err := l.loadObject(bpf.Gate)
	if err != nil {
		return nil, err
	}
	if err := l.maps["tl_gate"].Update(uint32(0), dscp.Programs["tl_dscp"], ebpf.UpdateAny); err != nil {
		return nil, fmt.Errorf("opening the gate of filters: %w", err)
	}
	return &clsactFilters{gate.Programs["tl_clsact"], l.o.Instance, l.o.Ledger, l.log}, nil
}

func (*clsactFilters) String() string { return "clsact" }

// attach makes the qdisc if there is none, and the filter. The qdisc's entry is dropped when the filter stands, whose entry
// then answers for both: a qdisc is recognised by our filter in it, and by nothing else.
func (w *clsactFilters) attach(l netlink.Link) (attachment, error) {
	qdisc, err := w.makeQdisc(l)
	if err != nil {
		return nil, clsactRefusal(l, err)
	}
	a, err := w.makeFilter(l, qdisc != 0)
	if qdisc == 0 {
		return a, clsactRefusal(l, err)
	}
	if err != nil {
		_, undoErr := w.ledger.UndoOnly(w.log, qdisc)
		return nil, errors.Join(clsactRefusal(l, err), undoErr)
	}
	if err := w.ledger.Forget(qdisc); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// makeQdisc sees that there is a clsact qdisc. It returns the number of the entry if it has made it, 0 if it is another's.
func (w *clsactFilters) makeQdisc(l netlink.Link) (uint64, error) {
	has, err := clsact.HasQdisc(l)
	if err != nil || has {
		return 0, err
	}
	place, err := clsact.PlaceOf(l.Attrs())
	if err != nil {
		return 0, err
	}
	id, err := w.ledger.Record(ledger.Entry{Kind: ledger.ClsactQdisc, Target: place.Interface, Place: &place})
	if err != nil {
		return 0, err
	}
	if err := clsact.AddQdisc(l); err != nil {
		// Whatever is there now is not ours to undo.
		if err := w.ledger.Forget(id); err != nil {
			return 0, err
		}
		if has, _ := clsact.HasQdisc(l); has {
			return 0, nil
		}
		return 0, err
	}
	return id, nil
}

// makeFilter returns an attachment or an error. ours says that the qdisc was made for it.
func (w *clsactFilters) makeFilter(l netlink.Link, ours bool) (attachment, error) {
	f, err := clsact.NewFilter(l, w.instance, w.gate, ours)
	if err != nil {
		return nil, err
	}
	id, err := w.ledger.Record(ledger.Entry{Kind: ledger.ClsactFilter, Target: f.Interface, Filter: &f})
	if err != nil {
		return nil, err
	}
	if err := f.Add(w.gate); err != nil {
		return nil, errors.Join(err, w.ledger.Forget(id))
	}
	return &clsactAttachment{w, f, id}, nil
}

// clsactRefusal adds what helps to an error, if it is one.
func clsactRefusal(l netlink.Link, err error) error {
	var in *clsact.IngressError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &in):
		return &refusal{err.Error(), in.Remedy()}
	case errors.Is(err, unix.ENOENT):
		return &refusal{"the kernel has neither tcx nor all of clsact: " + err.Error(),
			"modprobe sch_ingress cls_bpf, or a kernel with CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF and CONFIG_NET_CLS_ACT, or Linux 6.6 or later"}
	}
	return &refusal{err.Error(), "see `tc filter show dev " + l.Attrs().Name + " egress`"}
}

// clsactAttachment is one filter.
type clsactAttachment struct {
	*clsactFilters
	filter clsact.Filter
	id     uint64
}

func (a *clsactAttachment) Close() error {
	_, err := a.ledger.UndoOnly(a.log, a.id)
	return err
}

// stands is false when someone has taken the filter away, or the interface is another.
func (a *clsactAttachment) stands() bool {
	stands, err := a.filter.Stands()
	return stands || err != nil && !errors.As(err, new(*clsact.GoneError))
}

// dropStaleFilters takes away what an agent that was killed left at interfaces, whatever this kernel's way is now.
func (l *Loader) dropStaleFilters() {
	if l.o.Ledger == nil {
		return
	}
	entries, err := l.o.Ledger.Entries()
	var stale []uint64
	for _, e := range entries {
		if slices.Contains([]ledger.Kind{ledger.ClsactQdisc, ledger.ClsactFilter}, e.Kind) {
			stale = append(stale, e.ID)
		}
	}
	if err == nil && len(stale) > 0 {
		_, err = l.o.Ledger.UndoOnly(l.log, stale...)
	}
	if err != nil { // what is left does nothing, and stays written down
		l.log.Warn("not every filter that an agent left could be taken away", "err", err)
	}
}
