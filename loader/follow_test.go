// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/internal/testenv"
)

func TestFollowsAddressesAndRoutes(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	e.wantSteered()
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	where := func(addr string) uint32 {
		var d bpf.Dest
		key := bpf.Prefix{Prefixlen: 128, Addr: bpf.AddrFrom(netip.MustParseAddr(addr))}
		if err := e.l.maps["tl_dest"].Lookup(key, &d); err != nil {
			t.Fatal(err)
		}
		return d.Where
	}
	for _, c := range []struct {
		change, addr string
		want         uint32
	}{
		{"addr add 10.77.0.1/24 dev near", "10.77.0.1", bpf.WhereLocal},
		{"addr add 10.78.0.1/24 dev near", "10.78.0.9", bpf.WhereOnLink},
		{"addr del 10.78.0.1/24 dev near", "10.78.0.9", bpf.WhereRouted},
		{"route add 10.2.0.1/32 dev near", testenv.Far4, bpf.WhereOnLink},
		{"route del 10.2.0.1/32 dev near", testenv.Far4, bpf.WhereRouted},
		{"route add blackhole 10.79.0.0/16", "10.79.0.1", bpf.WhereLocal},
		{"-6 addr add fd77::1/64 dev near nodad", "fd77::2", bpf.WhereOnLink},
		{"link set near down", "10.77.0.2", bpf.WhereRouted},
	} {
		if strings.HasPrefix(c.change, "-6") && e.ln6 == nil {
			continue
		}
		ip(c.change)
		eventually(t, c.change, func() bool { return where(c.addr) == c.want })
	}
}
