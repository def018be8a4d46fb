// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/policy"
)

// maxExcludes is how many users and cgroups may be excluded: half of max_entries in bpf/maps.h, since a reload has old
// and new side by side.
const maxExcludes = 4096

// ruleState is what of the rules is in the kernel.
type ruleState struct {
	inForce ruleEntries
	fits    bufferLimits // of the buffers that the rules in force ask for
	buffers bufferState
}

// ruleEntries is the content of the tables that rules fill.
type ruleEntries struct {
	classes  map[bpf.Prefix]uint32
	rules    map[bpf.ClassPort]bpf.Rule
	excludes map[bpf.ExcludeKey]uint32
}

// attachSockops attaches the program that serves rules, telemetry, steering and the fast path.
func (l *Loader) attachSockops(context.Context) {
	err := l.attempt(func() error {
		coll, err := l.loadSockops()
		if err != nil {
			return err
		}
		return l.attachCgroup(coll, "tl_sockops", ebpf.AttachCGroupSockOps)
	})
	if err != nil {
		detail, remedy := whyNot(err, minKernel)
		l.feature(Feature{Name: "rules", Detail: detail, Remedy: remedy})
		l.feature(Feature{Name: "telemetry", Detail: detail, Remedy: remedy})
		return
	}
	l.feature(Feature{Name: "rules", On: true, Detail: "congestion control, window and pacing are set when a connection begins"})
	l.feature(Feature{Name: "telemetry", On: true, Detail: "flows of rules, and their paths"})
}

// applyRules puts a table in force: what is new or changed first, then what is stale is deleted, so that at any moment a
// flow which both the old and the new table cover finds the rule of one of them.
func (l *Loader) applyRules(t *policy.Table) error {
	excludes, err := l.resolveExcludes(t)
	if err != nil {
		return err
	}
	if len(excludes) > maxExcludes {
		return fmt.Errorf("the rules exclude %d users and cgroups, the kernel's table holds %d; exclude a common parent cgroup", len(excludes), maxExcludes)
	}
	fits := l.makeRoom(t)
	if err := l.switchRules(l.entriesOf(t, excludes, fits)); err != nil {
		return err
	}
	l.rules.fits = fits
	return nil
}

// entriesOf returns the content of the tables; fits says which fixed buffers the kernel gives.
func (l *Loader) entriesOf(t *policy.Table, excludes map[bpf.ExcludeKey]uint32, fits bufferLimits) ruleEntries {
	e := ruleEntries{
		classes:  map[bpf.Prefix]uint32{},
		rules:    map[bpf.ClassPort]bpf.Rule{},
		excludes: excludes,
	}
	for _, c := range t.Classes() {
		e.classes[bpf.PrefixFrom(c.Prefix)] = c.ID
	}
	for _, x := range t.Entries() {
		e.rules[bpf.ClassPort{ClassId: x.Class, Port: x.Port}] = l.kernelRule(x.Rule, fits)
	}
	return e
}

func (l *Loader) kernelRule(r policy.Rule, fits bufferLimits) bpf.Rule {
	k := bpf.Rule{
		RuleId:      r.ID,
		PeerId:      r.PeerID,
		WindowBytes: fits.window(r),
		SndbufBytes: fits.sndbuf(r),
		PacingBps:   r.PacingBps,
		Priority:    uint8(r.Priority),
		PathBits:    pathBits(r),
		Window:      uint8(r.Mode()),
		Weight:      r.ShareWeight(),
		Congestion:  bpf.CCNameFrom(r.Congestion),
	}
	if r.Auto {
		k.AutoCongestion = 1
	}
	if l.spliceFor(r) {
		k.Splice = 1
	}
	if len(r.ExcludeCgroups)+len(r.ExcludeUsers) > 0 {
		k.HasExcludes = 1
	}
	return k
}

// pathBits returns the prefix length of a rule's paths in the 16-byte address: /24 or /48, or the rule's own if longer.
func pathBits(r policy.Rule) uint8 {
	if r.Remote.Addr().Is4() {
		return uint8(96 + max(24, r.Remote.Bits()))
	}
	return uint8(max(48, r.Remote.Bits()))
}

// PathOf returns the path that a rule's flows to an address count for: its /24 or /48, or the rule's own prefix if longer.
func PathOf(r policy.Rule, a netip.Addr) netip.Prefix {
	bits := int(pathBits(r))
	if a.Unmap().Is4() && bits >= 96 {
		return netip.PrefixFrom(a.Unmap(), bits-96).Masked()
	}
	return netip.PrefixFrom(netip.AddrFrom16(a.As16()), bits).Masked()
}

// refreshRules follows what changes beside the configuration: the cgroups of excluded services come and go, and with them
// their ids, and someone may lower the host's maxima of buffers again.
func (l *Loader) refreshRules() {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	if l.table == nil {
		return
	}
	excludes, err := l.resolveExcludes(l.table)
	if err != nil {
		l.log.Warn("refreshing rules", "err", err)
		return
	}
	squeezed := l.followPressure(time.Now())
	fits := l.makeRoom(l.table)
	if squeezed || fits != l.rules.fits {
		l.rules.fits = fits
		if _, err := l.writeReserved(); err != nil {
			l.log.Warn("refreshing reservations", "err", err)
		}
	} else if maps.Equal(excludes, l.rules.inForce.excludes) {
		return
	}
	if err := l.switchRules(l.entriesOf(l.table, excludes, fits)); err != nil {
		l.log.Warn("refreshing rules", "err", err)
		return
	}
}
