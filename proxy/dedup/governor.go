// SPDX-License-Identifier: Apache-2.0

package dedup

import (
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// A Step is what a flow's sender saw while it encoded one block and gave it to the link.
type Step struct {
	RawBytes  int           // of the block
	WireBytes int           // of its payload
	Encode    time.Duration // how long Encode took
	LinkWait  time.Duration // how long writing waited for the link to take the payload, its own work not counted
	LinkBusy  bool          // when Encode was done, the link still had earlier bytes to send: encoding held nothing up
	Waiting   bool          // when Encode was done, more input was waiting to be read
}

const (
	// govern is how much time, of encoding and of waiting for the link, leads to a decision: long beside one block.
	govern = 20 * time.Millisecond
	// quietBytes lead to one too, where the application gives too little to keep anything busy.
	quietBytes = 256 << 10
	// trial is for how many decisions a step is judged by what it led to; in the first ones buffers fill or run empty.
	trial, trialSettles = 5, 2
	// A step that had to be taken back is tried again after holdFirst decisions, and after twice as many each time it fails, up
	// to holdMost.
	holdFirst, holdMost = 8, 128
)

// cost is the time that an effort takes for a byte that is new, relative to the others: measured on a mix of texts, programs and
// tables. It only has to tell whether a step up can fit at all.
var cost = [codec.Efforts]time.Duration{codec.EffortRaw: 1, codec.EffortReferences: 6, codec.EffortFastest: 30, codec.EffortDefault: 55,
	codec.EffortBetter: 110}

// A Governor chooses the effort of a flow's encoder: as much as there is time for while the link is busy, and less where the link is
// idle because the encoder is not done, as long as that lets more through. It is arithmetic only and belongs to the goroutine that
// encodes.
type Governor struct {
	// Least is what it never goes below: who sends raw what is to be found when it comes again keeps nothing of it.
	Least codec.Effort

	effort codec.Effort

	// Since the last decision.
	raw, wire    int
	encode, wait time.Duration
	idle         time.Duration // of encode, the part in which the link had nothing to send although input was waiting
	pressed      bool          // input was waiting behind some block

	step     int                 // what the last step added to the effort: 1, -1, or 0 once it is judged
	age      int                 // decisions since then
	before   float64             // raw bytes a nanosecond before it
	up, down [codec.Efforts]hold // of the steps from each effort
}

// A hold keeps a step that did not pay from being tried again at once.
type hold struct{ left, last int }

func (h *hold) fail() {
	h.last = min(max(2*h.last, holdFirst), holdMost)
	h.left = h.last
}

// NewGovernor makes a governor that begins at the default effort.
func NewGovernor() *Governor { return &Governor{effort: codec.EffortDefault} }

// Effort returns the effort chosen last.
func (g *Governor) Effort() codec.Effort { return g.effort }

// Next takes what was seen of one block and returns the effort for the next.
func (g *Governor) Next(s Step) codec.Effort {
	g.raw += s.RawBytes
	g.wire += s.WireBytes
	g.encode += s.Encode
	g.wait += s.LinkWait
	if s.Waiting {
		g.pressed = true
		if !s.LinkBusy {
			g.idle += s.Encode
		}
	}
	if g.encode+g.wait < govern && (g.pressed || g.raw < quietBytes) {
		return g.effort
	}
	g.decide()
	g.raw, g.wire, g.encode, g.wait, g.idle, g.pressed = 0, 0, 0, 0, 0, false
	return g.effort
}

func (g *Governor) decide() {
	took := max(g.encode+g.wait, 1)
	rate := float64(g.raw) / float64(took)
	bound := 2*g.idle > took // the link stood idle for most of the time: the encoder is the bottleneck
	for e := range codec.Efforts {
		g.up[e].left, g.down[e].left = max(g.up[e].left-1, 0), max(g.down[e].left-1, 0)
	}
	if g.judge(rate, bound) {
		return
	}
	switch {
	case bound && g.down[g.effort].left == 0 && g.gains():
		g.move(-1, rate)
	case !bound && g.up[g.effort].left == 0 && g.effort+1 < codec.Efforts && g.fits():
		g.move(1, rate)
	}
}

func (g *Governor) move(step int, rate float64) {
	g.effort = codec.Effort(int(g.effort) + step)
	g.step, g.age, g.before = step, 0, rate
}

// judge takes a step back that did not pay: one up that made the encoder the bottleneck, or one down that let less through
// because the link had more to carry. It returns true while it is too early to say, and when it took one back.
func (g *Governor) judge(rate float64, bound bool) bool {
	if g.step == 0 {
		return false
	}
	g.age++
	from := int(g.effort) - g.step
	worse := rate < g.before*0.97
	switch {
	case g.step > 0 && bound && worse:
		g.up[from].fail()
	case g.step < 0 && !bound && worse && g.pressed:
		if g.age <= trialSettles {
			return true
		}
		g.down[from].fail()
	case g.age >= trial:
		if g.step > 0 {
			g.up[from].last = 0
		} else {
			g.down[from].last = 0
			g.up[g.effort].left = max(g.up[g.effort].left, holdFirst)
		}
		g.step = 0
		return false
	default:
		return g.step < 0 && g.age <= trialSettles && !bound
	}
	g.effort, g.step = codec.Effort(from), 0
	return true
}

// gains tells whether less effort could let more through.
func (g *Governor) gains() bool {
	switch {
	case g.effort <= g.Least:
		return false
	case g.effort == codec.EffortReferences:
		return g.wire > g.raw-g.raw/16 // else references are what lets so much through
	}
	return g.wire > g.raw/16 // else there is next to nothing to compress
}

// fits tells whether the next effort up can leave the link as busy as it is.
func (g *Governor) fits() bool {
	switch {
	case g.effort == codec.EffortRaw:
		return true // whether there is something to refer to now is found out by looking
	case !g.pressed:
		return g.effort < codec.EffortDefault // the application is the bottleneck: its latency is worth more than a better ratio
	}
	more := g.encode * cost[g.effort+1] / cost[g.effort]
	return g.wait == 0 || more < g.encode+g.wait
}
