// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"math/rand/v2"
	"time"
)

// network is a path in a few lines: one flow in bulk, a window that grows and shrinks as the families do, round by round.
type network struct {
	rateMbps    float64
	rtt         time.Duration
	queueBDP    float64
	loss        float64
	crossQueue  float64 // of the queue, that others keep filled
	jitter      float64 // of the round trip, by which a smoothed one may be late
	rng         *rand.Rand
	window      float64 // packets
	flow        Flow
	lastRateBps uint64
	gone        time.Duration
	sum         float64 // packets delivered
}

const packetBytes = 1448

func newNetwork(rateMbps float64, rtt time.Duration, queueBDP, loss float64) *network {
	return &network{rateMbps: rateMbps, rtt: rtt, queueBDP: queueBDP, loss: loss, rng: rand.New(rand.NewPCG(1, 2)), window: 10,
		flow: Flow{Cookie: 1, Path: here, MSSBytes: packetBytes, RTTMinUs: uint32(rtt.Microseconds())}}
}

func (n *network) bdp() float64 { return n.rateMbps * 1e6 / 8 * n.rtt.Seconds() / packetBytes }

// second lets a second pass under an algorithm and says what was lost.
func (n *network) second(at time.Time, algorithm string) (losses []Loss) {
	n.flow.Congestion = algorithm
	for left := time.Second; left > 0; {
		bdp := n.bdp()
		cross := n.crossQueue * n.queueBDP * bdp
		if ignoresLoss(algorithm) {
			n.window = 1.2 * bdp
		}
		inflight := min(n.window, bdp*(1+n.queueBDP)-cross)
		rtt := time.Duration(float64(n.rtt) * max(1, (inflight+cross)/bdp))
		sent := max(inflight, 1)
		over := max(n.window-inflight, 0)
		lost := over
		for range int(sent) {
			if n.rng.Float64() < n.loss {
				lost++
			}
		}
		delivered := max(sent-lost, 1)
		n.flow.SRTTUs = uint32(float64(rtt.Microseconds()) * (1 + n.jitter*(1+n.rng.Float64())/2))
		n.flow.SegsOut += uint32(sent + over)
		n.flow.Retransmits += uint32(lost)
		n.flow.BytesAcked += uint64(delivered * packetBytes)
		n.lastRateBps = uint64(sent * packetBytes / rtt.Seconds())
		n.flow.DeliveredBps = n.lastRateBps
		n.sum += delivered
		if lost > 0 {
			losses = append(losses, Loss{Cookie: n.flow.Cookie, Path: here, At: at.Add(time.Second - left), SRTTUs: n.flow.SRTTUs,
				RTTMinUs: n.flow.RTTMinUs, CwndPackets: uint32(n.window), DeliveredBps: n.lastRateBps})
			n.window *= shrink(algorithm)
		} else {
			n.window += grow(algorithm)
		}
		n.window = max(n.window, 2)
		left -= rtt
		n.gone += rtt
	}
	n.flow.Age += time.Second
	return losses
}

func shrink(algorithm string) float64 {
	if family(algorithm) == "illinois" {
		return 0.875
	}
	return 0.7
}

func grow(algorithm string) float64 {
	if family(algorithm) == "illinois" {
		return 10
	}
	return 1
}

// run lets a chooser work on the network and returns its changes.
func (n *network) run(c *Chooser, from time.Time, seconds int) (changes []Change, end time.Time) {
	algorithm := c.Prior()
	for _, d := range c.Decisions() {
		algorithm = d.Chosen
	}
	at := from
	for range seconds {
		for _, l := range n.second(at, algorithm) {
			c.Lost(l)
		}
		at = at.Add(time.Second)
		for _, ch := range c.Tick(at, []Flow{n.flow}) {
			changes = append(changes, ch)
			algorithm = ch.New
		}
	}
	return changes, at
}
