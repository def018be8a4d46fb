// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"net/netip"
	"time"
)

// Connection is a live one, as far as it tells of a path.
type Connection struct {
	Remote netip.Addr
	Age    time.Duration
	Idle   time.Duration // since the latest acknowledgement
	MinRTT time.Duration // the least of the latest five minutes, as the kernel keeps it
	SRTT   time.Duration // smoothed
}

const (
	freshIdle = 30 * time.Second // beyond, a connection tells nothing of now
	young     = time.Minute      // up to here the least round-trip time is one of now, and not of a path that has gone
)

// sampleOf is what connections tell of an end point: the least round-trip time among young ones, or else among all. Queued says
// that every one of them sees a longer one than the path's band now: by a queue, or since the path is another one.
func sampleOf(all []Connection, e EndPoint, band time.Duration) (s sample, queued bool) {
	var least, leastYoung, srtt time.Duration
	lower := func(to *time.Duration, v time.Duration) {
		if v > 0 && (*to == 0 || v < *to) {
			*to = v
		}
	}
	for _, c := range all {
		if !e.Remote.Contains(c.Remote) || c.Idle > freshIdle || c.MinRTT <= 0 {
			continue
		}
		lower(&least, c.MinRTT)
		lower(&srtt, c.SRTT)
		if c.Age < young {
			lower(&leastYoung, c.MinRTT)
		}
	}
	if leastYoung > 0 {
		least = leastYoung
	}
	if least == 0 {
		return sample{}, false
	}
	base := e.RTT()
	return sample{rtt: least, source: fromFlows}, base > 0 && srtt > base+bandOf(base, band)
}
