// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/loader/policy"
)

// originalMaxAge is how long a steered connection may wait for the engine's accept.
const originalMaxAge = 10 * time.Second

// TakeOriginal returns where a connection that the engine has accepted from client wanted to go, and forgets it. False
// means that nobody steered it.
func (l *Loader) TakeOriginal(client netip.AddrPort) (Original, bool) {
	var cookie uint64
	if err := l.maps["tl_client"].LookupAndDelete(bpf.EndpointFrom(client), &cookie); err != nil {
		l.unlessAbsent("looking for a client", err)
		return Original{}, false
	}
	var o bpf.Orig
	if err := l.maps["tl_orig"].LookupAndDelete(cookie, &o); err != nil {
		l.unlessAbsent("looking for an original destination", err)
		return Original{}, false
	}
	dst, ok := o.Addr.Netip()
	if !ok {
		return Original{}, false
	}
	source, _ := o.Source.Netip()
	return Original{
		Destination: netip.AddrPortFrom(dst, o.Port),
		Source:      netip.AddrPortFrom(source, client.Port()),
		RuleID:      o.RuleId,
	}, true
}

// Own enters one of the agent's own sockets by its cookie, before connect(), so that it is not steered; or updates it when
// a leg is taken into use for a rule (0: none yet).
func (l *Loader) Own(cookie uint64, ruleID uint32, leg bool) error {
	own := bpf.Own{RuleId: ruleID}
	t := l.inForce.Load()
	if leg {
		own.Leg, own.Priority = 1, uint8(legPriority(t))
	}
	if t != nil {
		if r, ok := t.Rule(ruleID); ok {
			own.PeerId, own.Priority = r.PeerID, uint8(r.Priority)
			own.Window, own.Weight = uint8(r.Mode()), r.ShareWeight()
			if r.Auto {
				own.AutoCongestion = 1
			}
		}
	}
	if err := l.maps["tl_own"].Update(cookie, own, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("entering an own socket: %w", err)
	}
	return nil
}

// legPriority is that of a leg no flow has taken yet, and of the peers' pings: a lost handshake or ping costs the flows of
// all rules, so its retransmission is marked if those of any rule are. At the far end that rule need not name a peer.
func legPriority(t *policy.Table) bpf.Priority {
	if t == nil {
		return bpf.PriorityOff
	}
	for _, r := range t.Rules() {
		if r.Priority != bpf.PriorityOff {
			return bpf.PriorityRetransmit
		}
	}
	return bpf.PriorityOff
}

// Disown forgets an own socket, when it is closed.
func (l *Loader) Disown(cookie uint64) {
	l.unlessAbsent("forgetting an own socket", l.maps["tl_own"].Delete(cookie))
}

// Bypass has connections to one destination go direct for a while.
func (l *Loader) Bypass(dst netip.AddrPort, r reason.Code, d time.Duration) {
	key := bpf.EndpointFrom(dst)
	var old bpf.Bypass
	if err := l.maps["tl_bypass"].Lookup(key, &old); err == nil && old.UntilNs == 0 {
		return // a peer's listener: for good already
	}
	e := bpf.Bypass{UntilNs: monotonic() + uint64(d), Reason: uint32(r)}
	if err := l.maps["tl_bypass"].Update(key, e, ebpf.UpdateAny); err != nil {
		l.log.Warn("cannot let a destination go direct", "destination", dst, "reason", r, "err", err)
	}
}

// SetPeer says whether a peer answers. Connections of a peer that never did go direct.
func (l *Loader) SetPeer(id uint32, up bool) {
	v := uint32(0)
	if up {
		v = 1
	}
	if err := l.maps["tl_peer"].Update(id, v, ebpf.UpdateAny); err != nil {
		l.log.Warn("cannot enter a peer's state", "peer", id, "up", up, "err", err)
	}
}

// ReasonCounts returns how often each reason was given since Load; reasons never given are left out.
func (l *Loader) ReasonCounts() (map[reason.Code]uint64, error) {
	counts := map[reason.Code]uint64{}
	m := l.maps["tl_reason"]
	for code := range m.MaxEntries() {
		var perCPU []uint64
		if err := m.Lookup(code, &perCPU); err != nil {
			return nil, fmt.Errorf("reading the reasons' counts: %w", err)
		}
		for _, n := range perCPU {
			if n > 0 {
				counts[reason.Code(code)] += n
			}
		}
	}
	return counts, nil
}

// sweep deletes original destinations that the engine never took, so that there is always room for new ones.
func (l *Loader) sweep() {
	var cookie uint64
	var o bpf.Orig
	var stale []uint64
	now := monotonic()
	it := l.maps["tl_orig"].Iterate()
	for it.Next(&cookie, &o) {
		if o.TimeNs+uint64(originalMaxAge) < now {
			stale = append(stale, cookie)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		l.log.Warn("sweeping", "err", err)
	}
	for _, c := range stale {
		l.unlessAbsent("sweeping", l.maps["tl_orig"].Delete(c))
	}
	if len(stale) > 0 {
		l.log.Debug("swept original destinations that were never taken", "count", len(stale))
	}
}

// unlessAbsent logs an error other than that there is no such entry.
func (l *Loader) unlessAbsent(doing string, err error) {
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		l.log.Warn(doing, "err", err)
	}
}
