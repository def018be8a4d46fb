// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
	"github.com/trunkline/trunkline/vmtest/lab"
)

const (
	headerBytes   = 52 // IPv4 20, TCP 20, time stamps 12
	ethernetBytes = 14 // around each packet on the path, as the rate counts it
)

// cell is a path, and how many share it.
type cell struct {
	rate     uint64 // bit/s, of the link layer
	rtt      time.Duration
	mtu      int
	queueBDP float64
	streams  int
	number   int // in the plan
}

func (c *cell) String() string {
	return fmt.Sprintf("%s, %s", c.path(), plural(c.streams, "stream"))
}

// path is what the cell has in common with those of other numbers of streams.
func (c *cell) path() string {
	return fmt.Sprintf("%s x %s, MTU %d, queue %g BDP", units.FormatRate(float64(c.rate)), c.rttText(), c.mtu, c.queueBDP)
}

func (c *cell) rttText() string { return strconv.FormatFloat(c.rtt.Seconds()*1e3, 'g', 4, 64) + " ms" }

// fileName is the path's, for a drawing's.
func (c *cell) fileName() string {
	text := fmt.Sprintf("%s-%s-mtu%d-queue%g", units.FormatRate(float64(c.rate)), c.rttText(), c.mtu, c.queueBDP)
	return strings.NewReplacer("bit/s", "bit", " ", "").Replace(text)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// bdp is rate x RTT in bytes of the link layer.
func (c *cell) bdp() int { return int(float64(c.rate) / 8 * c.rtt.Seconds()) }

// packetRate is that of IP packets in bit/s, by which the emulator works, where they are of full size.
func (c *cell) packetRate() uint64 {
	return uint64(float64(c.rate) * float64(c.mtu) / float64(c.mtu+ethernetBytes))
}

// ceiling is what the path carries of payload in bit/s, in full segments: 956 Mbit/s of a gigabit at an MTU of 1500.
func (c *cell) ceiling() float64 {
	return float64(c.rate) * float64(c.mtu-headerBytes) / float64(c.mtu+ethernetBytes)
}

// segments fill the path.
func (c *cell) segments() int { return (c.bdp() + c.mtu + ethernetBytes - 1) / (c.mtu + ethernetBytes) }

// queueTime is how long the drop-tail queue takes to drain: an emulator that is later by more than this loses what the path
// would not have lost.
func (c *cell) queueTime() time.Duration {
	bytes := max(float64(c.packetRate())/8*c.rtt.Seconds()*c.queueBDP, lab.MinQueue)
	return time.Duration(bytes * 8 / float64(c.packetRate()) * float64(time.Second))
}
