// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
)

// Where is how far a destination is.
type Where string

// The distances. Only what is routed has paths.
const (
	Routed Where = "routed"
	Local  Where = "local"   // this host
	OnLink Where = "on-link" // a network that this host is connected to
)

// Where says how far an address is, as the kernel side sees it now.
func (l *Loader) Where(a netip.Addr) (Where, error) {
	var d bpf.Dest
	err := l.maps["tl_dest"].Lookup(bpf.Prefix{Prefixlen: 128, Addr: bpf.AddrFrom(a)}, &d)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return Routed, nil
	case err != nil:
		return "", fmt.Errorf("looking for %s among the destinations: %w", a, err)
	case d.Where == bpf.WhereLocal:
		return Local, nil
	case d.Where == bpf.WhereOnLink:
		return OnLink, nil
	}
	return Routed, nil
}
