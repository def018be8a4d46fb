// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/loader/policy"
)

// Apply puts other rules and peers' listeners in force. Rules that cannot be used change nothing. New entries are
// written before stale ones are deleted, so that no connection falls between the two.
func (l *Loader) Apply(rules []policy.Rule, peerAddrs []netip.AddrPort) error {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	t, err := policy.BuildAfter(l.table, rules)
	if err != nil {
		return err
	}
	if err := l.applyPeerAddrs(peerAddrs); err != nil {
		return err
	}
	l.holdAlgorithms(t)
	if err := l.applyRules(t); err != nil {
		return err
	}
	l.dropAlgorithms(t)
	l.table = t
	l.inForce.Store(t)
	l.feature(l.spliceFeature(rules))
	l.readMarks()
	return nil
}

// applyPeerAddrs keeps peers' listeners from being steered, for good.
func (l *Loader) applyPeerAddrs(addrs []netip.AddrPort) error {
	for _, a := range addrs {
		e := bpf.Bypass{Reason: uint32(reason.PeerAddress)}
		if err := l.maps["tl_bypass"].Update(bpf.EndpointFrom(a), e, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("entering the peer's address %s: %w", a, err)
		}
	}
	for _, a := range l.peerAddrs {
		if slices.Contains(addrs, a) {
			continue
		}
		err := l.maps["tl_bypass"].Delete(bpf.EndpointFrom(a))
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("deleting the former peer's address %s: %w", a, err)
		}
	}
	l.peerAddrs = slices.Clone(addrs)
	return nil
}

// keepPeerAddrs enters peers' listeners again: their map drops its oldest entries when it is full.
func (l *Loader) keepPeerAddrs() {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	if err := l.applyPeerAddrs(l.peerAddrs); err != nil {
		l.log.Warn("keeping peers' addresses", "err", err)
	}
}
