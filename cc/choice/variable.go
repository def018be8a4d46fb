// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"slices"
)

// What a link whose rate varies looks like, as a radio link's does. Its queue holds so many packets, so that it is short in time
// while the link is fast, and long while it is slow. Where flows share a link of one rate, a flow's rate varies too, but a
// full queue always has the same length; and where noise strikes on such a link, queues differ but the rate does not.
// It matters since on a link that varies rates and round trips at losses look like noise now and then: but what ignores losses
// carries no more there, and sends several times as much again.
const (
	varyLosses = 16  // from queues, in two halves: what changes once, in one of them, is no variation
	varyQueue  = 3.0 // the longest by the shortest
	varyRate   = 2.0 // the highest by the lowest
	outlying   = 0.1 // the share at either end that is not looked at
)

// varies says whether losses come from the queue of a link whose rate varies.
func (p *path) varies() bool {
	list := p.queues()
	if len(list) < varyLosses {
		return false
	}
	half := len(list) / 2
	return vary(list[:half]) && vary(list[half:])
}

func vary(list []queue) bool {
	us, rate := make([]float64, len(list)), make([]float64, len(list))
	for i, q := range list {
		us[i], rate[i] = q.us, q.rate
	}
	return spread(us) >= varyQueue && spread(rate) >= varyRate
}

// spread is the largest by the least, without what lies at either end. The values are put in order.
func spread(values []float64) float64 {
	slices.Sort(values)
	out := int(outlying * float64(len(values)))
	least := values[out]
	if least <= 0 {
		return 0
	}
	return values[len(values)-1-out] / least
}
