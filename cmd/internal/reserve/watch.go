// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"fmt"
	"slices"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/units"
)

// How an end point is watched. The premises of Noh and Ahn are a constant round-trip time with at most 20 ms of jitter, of which
// the first value is used for good.
const (
	lookEvery  = 10 * time.Second // as long as all is as it was measured
	lookAgain  = time.Second      // otherwise
	lookAhead  = time.Minute      // before a reservation begins
	offBefore  = 3                // measurements in a row outside the band, until the path counts as another one
	lostBefore = 3                // probes in a row without an answer, until it counts as lost
	settledBy  = 5                // measurements in a row that agree, until another round-trip time is taken
	minBand    = 2 * time.Millisecond
	maxBand    = 20 * time.Millisecond
)

// sources of measurements
const (
	fromFlows = "flows"
	fromProbe = "probe"
)

// sample is a measurement; zero: there was nothing to measure. Silent: a probe had no answer.
type sample struct {
	rtt    time.Duration
	source string
	silent bool
}

// watch is what the keeper remembers of an end point between looks.
type watch struct {
	next     time.Duration // boot time of the next look
	answered bool          // a probe has been answered: only then silence means that the path is lost
	silent   int           // probes in a row without an answer
	off      []time.Duration
}

// bandOf is how far a round-trip time may be off.
func bandOf(rtt, configured time.Duration) time.Duration {
	if configured > 0 {
		return configured
	}
	return min(max(rtt/4, minBand), maxBand)
}

func within(rtt, base, configured time.Duration) bool {
	return (rtt - base).Abs() <= bandOf(base, configured)
}

// judge takes a measurement of an end point. What is worth a line in the log is the text, "" for nothing; that also matters to
// what is in force.
func (w *watch) judge(e *EndPoint, s sample, band time.Duration, now time.Time) string {
	if s.rtt == 0 {
		return w.judgeSilence(e, s)
	}
	w.silent = 0
	w.answered = w.answered || s.source == fromProbe
	e.LastUs, e.LastAt, e.Source = s.rtt.Microseconds(), now, s.source
	e.Count++
	switch base := e.RTT(); {
	case base == 0:
		e.take(s.rtt, now)
		return "the round-trip time is measured"
	case e.Given:
		e.take(s.rtt, now)
		return fmt.Sprintf("the round-trip time is measured; the request said %s", units.FormatDuration(base))
	case within(s.rtt, base, band):
		w.off = nil
		if e.Problem == "" {
			return ""
		}
		e.Problem = ""
		return "the path is back"
	}
	return w.judgeOff(e, s.rtt, band, now)
}

func (w *watch) judgeSilence(e *EndPoint, s sample) string {
	if !s.silent || !w.answered && e.Source != fromProbe {
		return ""
	}
	if w.silent++; w.silent < lostBefore || e.Problem != "" {
		return ""
	}
	e.Problem = fmt.Sprintf("the path is lost: no connection, and %s answers no probe", e.Probe)
	return "the path is lost"
}

// judgeOff deals with a measurement outside the band: some in a row, and the path is another one; some more that agree, and it has
// been provisioned anew.
func (w *watch) judgeOff(e *EndPoint, rtt, band time.Duration, now time.Time) string {
	w.off = append(w.off, rtt)
	if n := len(w.off); n >= offBefore+settledBy {
		last := w.off[n-settledBy:]
		if least := slices.Min(last); within(slices.Max(last), least, band) {
			w.off = nil
			old := e.RTT()
			e.take(least, now)
			return fmt.Sprintf("the path has another round-trip time, and keeps it; it was %s", units.FormatDuration(old))
		}
		w.off = slices.Clone(last)
	}
	if len(w.off) < offBefore || e.Problem != "" {
		return ""
	}
	b := bandOf(e.RTT(), band)
	e.Problem = fmt.Sprintf("its round-trip time is %s, out of the band of %s to %s", units.FormatDuration(rtt),
		units.FormatDuration(max(e.RTT()-b, 0)), units.FormatDuration(e.RTT()+b))
	return "the round-trip time has left its band"
}

// take has the end point use another round-trip time: its path is provisioned anew.
func (e *EndPoint) take(rtt time.Duration, now time.Time) {
	e.RTTus, e.RTTAt, e.Count, e.Given, e.Problem = rtt.Microseconds(), now, 1, false, ""
}

// pause is how long until the next look.
func (w *watch) pause(e EndPoint) time.Duration {
	if e.usable() && !e.Given && len(w.off) == 0 && w.silent == 0 {
		return lookEvery
	}
	return lookAgain
}
