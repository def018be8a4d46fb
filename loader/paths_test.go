// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"net/netip"
	"testing"

	"github.com/trunkline/trunkline/loader/policy"
)

func TestPathOf(t *testing.T) {
	for _, c := range []struct{ rule, addr, want string }{
		{"0.0.0.0/0", "203.0.113.9", "203.0.113.0/24"},
		{"0.0.0.0/0", "::ffff:203.0.113.9", "203.0.113.0/24"},
		{"203.0.113.8/30", "203.0.113.9", "203.0.113.8/30"},
		{"203.0.113.9/32", "203.0.113.9", "203.0.113.9/32"},
		{"::/0", "2001:db8:1:2::9", "2001:db8:1::/48"},
		{"2001:db8:1:2::/64", "2001:db8:1:2::9", "2001:db8:1:2::/64"},
		{"::/0", "203.0.113.9", "::/48"},
	} {
		got := PathOf(policy.Rule{Remote: netip.MustParsePrefix(c.rule)}, netip.MustParseAddr(c.addr))
		if got != netip.MustParsePrefix(c.want) {
			t.Errorf("%s under %s: %s, want %s", c.addr, c.rule, got, c.want)
		}
	}
}
