// SPDX-License-Identifier: Apache-2.0

package lab

// Which packets are lost is a function of the seed, the direction and the packet's number, so that a run can meet the losses
// of another one. Both emulations compute it alike: here, and for the kernel in internal/drop/drop.c.

// golden is the step between the hashed numbers: 2^64 / golden ratio, as in splitmix64.
const golden = 0x9e3779b97f4a7c15

// oddsAll is certainty.
const oddsAll = 1 << 32

// maxBurst is the longest mean burst, in packets.
const maxBurst = 1e6

// odds are the probabilities, of oddsAll, that a packet is lost, by what happened to the one before. Equal ones are
// independent losses; with a higher second one they come in bursts (Gilbert's chain of two states).
type odds struct{ afterPassed, afterLost uint64 }

// newOdds gives the odds of a share of packets lost in the long run, 0 to 1, in bursts of so many on average; up to 1 they are
// independent. Where so many losses do not fit in such short bursts (see burstFits) they are independent too.
func newOdds(loss, burst float64) odds {
	loss = min(max(loss, 0), 1)
	passed, lost := loss, loss
	if burst > 1 && burstFits(loss, burst) && loss < 1 {
		// A burst ends with each of its packets with probability 1/burst; as many begin as end: (1-loss) passed = loss/burst.
		passed, lost = loss/burst/(1-loss), 1-1/burst
	}
	return odds{uint64(passed * oddsAll), uint64(lost * oddsAll)}
}

// burstFits says whether there are enough packets between bursts: at least one behind each.
func burstFits(loss, burst float64) bool { return burst <= 1 || loss == 1 || loss/burst <= 1-loss }

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// lossKey is what the numbers of a direction are hashed with.
func lossKey(seed, direction uint64) uint64 { return mix(mix(seed+golden) + direction) }

// chain decides on one packet after the other.
type chain struct {
	key, number uint64
	lostBefore  bool
}

// lost gives the next packet its number and says whether it is lost.
func (c *chain) lost(o odds) bool {
	threshold := o.afterPassed
	if c.lostBefore {
		threshold = o.afterLost
	}
	c.lostBefore = mix(c.key+c.number*golden)>>32 < threshold
	c.number++
	return c.lostBefore
}
