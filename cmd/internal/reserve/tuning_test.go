// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"strings"
	"testing"
	"time"
)

func TestTuningFor(t *testing.T) {
	for _, c := range []struct {
		rateBps        uint64
		rtt            time.Duration
		window         uint64
		scale          int
		std, jumbo     uint64
		rmem           string
		limitedMention string
	}{
		// The paper's path: 16.9 MB, and the number of segments that filled it in a prototype.
		{125_000_000, 135 * time.Millisecond, 16_875_000, 9, 11655, 1886, "4096 131072 33750000", ""},
		{1_250_000, 50 * time.Millisecond, 62_500, 0, 44, 7, "4096 131072 6291456", ""}, // what the kernel has already
		{12_500_000_000, 200 * time.Millisecond, 2_500_000_000, 14, 1726520, 279393, "4096 131072 2147483647", "use several"},
	} {
		got := TuningFor(c.rateBps, c.rtt)
		if got.WindowBytes != c.window || got.WindowScale != c.scale || got.Segments[0].Count != c.std || got.Segments[1].Count != c.jumbo {
			t.Errorf("%d B/s x %s: %+v, want %+v", c.rateBps, c.rtt, got, c)
		}
		if got.Sysctls()[2].Value != c.rmem {
			t.Errorf("%d B/s x %s: tcp_rmem %s, want %s", c.rateBps, c.rtt, got.Sysctls()[2].Value, c.rmem)
		}
		if !strings.Contains(got.Limited, c.limitedMention) || c.limitedMention == "" && got.Limited != "" {
			t.Errorf("%d B/s x %s: limited %q", c.rateBps, c.rtt, got.Limited)
		}
	}
}
