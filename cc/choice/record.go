// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"slices"
	"time"
)

// RecordAge is how long a path is remembered that no flow uses.
const RecordAge = 7 * 24 * time.Hour

// Record is what is worth keeping of a path over a restart.
type Record struct {
	Path         Path      `json:"path"`
	Updated      time.Time `json:"updated"`
	Chosen       string    `json:"chosen"`
	Previous     string    `json:"previous,omitempty"`
	Why          string    `json:"why"`
	Class        Class     `json:"class"`
	Since        time.Time `json:"since"`
	RTTMinUs     uint32    `json:"rtt_min_us"`
	LossAtChoice float64   `json:"loss_at_choice"`
	Results      []Result  `json:"results,omitempty"`
}

// Result is what an algorithm achieved on a path while it was of a class.
type Result struct {
	Class      Class     `json:"class"`
	Algorithm  string    `json:"algorithm"` // without tl_
	GoodputBps float64   `json:"goodput_Bps"`
	LossRate   float64   `json:"loss_rate"`
	Seconds    int       `json:"seconds"`
	At         time.Time `json:"at"`
}

// Records returns what is to be kept, the paths used last first.
func (c *Chooser) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Record, 0, len(c.paths))
	for _, p := range c.paths {
		r := Record{
			Path: p.id, Updated: p.updated, Chosen: p.chosen, Previous: p.previous, Why: p.why, Class: p.class, Since: p.since,
			RTTMinUs: p.rttMinUs, LossAtChoice: p.lossAtChoice,
		}
		for k, v := range p.learned {
			r.Results = append(r.Results, Result{k.class, k.algorithm, v.goodputBps, v.lossRate, v.seconds, v.at})
		}
		slices.SortFunc(r.Results, func(a, b Result) int { return b.At.Compare(a.At) })
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int { return b.Updated.Compare(a.Updated) })
	return out
}

// Restore takes in what was kept. What is too old, of a time to come, or of a path that is known already is left out.
func (c *Chooser) Restore(now time.Time, records []Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if age := now.Sub(r.Updated); age < 0 || age > RecordAge || c.paths[r.Path] != nil || len(c.paths) >= maxPaths {
			continue
		}
		if !r.Path.Prefix.IsValid() || !known(r.Class) {
			continue
		}
		p := c.add(r.Path, r.Updated)
		p.chosen, p.previous, p.why, p.class, p.since = r.Chosen, r.Previous, r.Why, r.Class, r.Since
		p.rttMinUs, p.lossAtChoice = r.RTTMinUs, r.LossAtChoice
		for _, l := range r.Results {
			if known(l.Class) {
				p.learned[lesson{l.Class, family(l.Algorithm)}] = result{l.GoodputBps, l.LossRate, l.Seconds, l.At}
			}
		}
	}
}

func known(c Class) bool {
	return slices.Contains([]Class{Unknown, Clean, Congestive, Shallow, Variable, Random}, c)
}
