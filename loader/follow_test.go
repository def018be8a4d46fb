// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

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
	where := func(addr string) Where {
		w, err := e.l.Where(netip.MustParseAddr(addr))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	for _, c := range []struct {
		change, addr string
		want         Where
	}{
		{"addr add 10.77.0.1/24 dev near", "10.77.0.1", Local},
		{"addr add 10.78.0.1/24 dev near", "10.78.0.9", OnLink},
		{"addr del 10.78.0.1/24 dev near", "10.78.0.9", Routed},
		{"route add 10.2.0.1/32 dev near", testenv.Far4, OnLink},
		{"route del 10.2.0.1/32 dev near", testenv.Far4, Routed},
		{"route add blackhole 10.79.0.0/16", "10.79.0.1", Local},
		{"-6 addr add fd77::1/64 dev near nodad", "fd77::2", OnLink},
		{"link set near down", "10.77.0.2", Routed},
	} {
		if strings.HasPrefix(c.change, "-6") && e.ln6 == nil {
			continue
		}
		ip(c.change)
		eventually(t, c.change, func() bool { return where(c.addr) == c.want })
	}
}
