// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// markedPrefixes returns where packets that may be marked go: to the prefixes of rules with a priority, and, as legs
// carry the flows of steered ones, to the peers.
func (l *Loader) markedPrefixes() []netip.Prefix {
	if l.table == nil {
		return nil
	}
	var out []netip.Prefix
	legs := false
	for _, r := range l.table.Rules() {
		if r.Priority == bpf.PriorityOff {
			continue
		}
		out = append(out, r.Remote)
		legs = legs || r.PeerID != 0
	}
	if legs {
		for _, a := range l.peerAddrs {
			out = append(out, netip.PrefixFrom(a.Addr().Unmap(), a.Addr().Unmap().BitLen()))
		}
	}
	return out
}

// towards returns the interfaces with a route into any of the prefixes: those of every route inside, and those of the
// longest route that holds all of it.
func (n network) towards(prefixes []netip.Prefix) map[int]bool {
	out := map[int]bool{}
	for _, p := range prefixes {
		longest := -1
		holding := map[int]bool{}
		for _, r := range n.routes {
			dst, ok := prefixOf(r)
			if !ok || r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST || !dst.Overlaps(p) {
				continue
			}
			hops := []int{r.LinkIndex}
			for _, h := range r.MultiPath {
				hops = append(hops, h.LinkIndex)
			}
			into := out
			if dst.Bits() <= p.Bits() {
				if dst.Bits() < longest {
					continue
				}
				if dst.Bits() > longest {
					longest, holding = dst.Bits(), map[int]bool{}
				}
				into = holding
			}
			for _, i := range hops {
				into[i] = true
			}
		}
		for i := range holding {
			out[i] = true
		}
	}
	return out
}
