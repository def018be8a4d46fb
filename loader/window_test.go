// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// reservedPath has a BDP whose double fits in the maxima of every kernel, which nobody can raise from a network namespace.
var reservedPath = lab.Options{Rate: 40e6, RTT: 20 * time.Millisecond, QueueBDP: 1}

func reserved(b netip.Addr, bits float64, rtt time.Duration) policy.Reserved {
	return policy.Reserved{ID: "r-1", Remote: []netip.Prefix{full(b)}, RateBps: uint64(bits / 8), RTT: rtt}
}

func TestReservedFlow(t *testing.T) {
	inside(t, reservedPath, func(t *testing.T, s site) {
		l := loadAt(t, s, policy.Rule{ID: 1, Name: "path", Remote: full(s.B4), Window: policy.WindowReserved})
		r := reserved(s.B4, 40e6, 20*time.Millisecond)
		if err := l.Reserve([]policy.Reserved{r}); err != nil {
			t.Fatal(err)
		}
		c := dialAt(t, s.B4, sinkPort)
		f := flowOf(t, l, c, func(f Flow) bool { return f.State == "established" && f.InitialPackets > 0 })
		bdp := int(r.BDPBytes())
		if f.Window != "reserved" || f.Reservation != "r-1" || f.WindowWhy != "" || f.ShareBps != r.RateBps {
			t.Errorf("flow: %+v", f)
		}
		if int(f.WindowBytes) < bdp || int(f.InitialPackets) < bdp/1514 {
			t.Errorf("window %d, initial packets %d, W is %d bytes", f.WindowBytes, f.InitialPackets, bdp)
		}
		rate := intOption(t, c, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
		if rate < 4_700_000 || rate > 5_000_000*1448/1514 {
			t.Errorf("pacing %d", rate)
		}
		transfer(t, c, 4<<20)
	}, nil)
}

func contains(err error, s string) bool { return strings.Contains(err.Error(), s) }
