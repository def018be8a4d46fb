// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultCandidates are what is chosen from where the configuration names none: the strongest that yields to a queue, the one
// that takes noise for noise, and the one that every neighbour has.
var DefaultCandidates = []string{"tl_illinois", "bbr", "tl_cubic"}

// refused are algorithms that no path is given by choice, and why.
var refused = map[string]string{
	"dctcp": "it takes every mark for a little congestion, which only the switches of a data centre send, and starves or is starved on a WAN",
}

// CheckCandidate says why an algorithm cannot be a candidate. A rule may still name it.
func CheckCandidate(name string) error {
	if why, ok := refused[family(name)]; ok {
		return fmt.Errorf("%s is never chosen for a path: %s; a rule may name it", name, why)
	}
	return nil
}

// family is the algorithm whoever brings it: the kernel's and ours behave alike.
func family(name string) string { return strings.TrimPrefix(name, "tl_") }

// noise names the algorithms that do not take losses for congestion: strong on a noisy path, and hard on the neighbours and
// on a short queue of one that is not.
var noise = []string{"bbr"}

func ignoresLoss(name string) bool { return slices.Contains(noise, family(name)) }

// noLoss is the order where no loss has told anything.
var noLoss = []string{"illinois", "bic", "cubic", "yeah", "htcp", "highspeed", "veno", "westwood", "hybla", "reno", "vegas", "lp"}

// orders are the candidates from the best to the worst by class. Unnamed ones come last, in the order of the configuration.
// The first is the geometric mean of the goodput over 20 and 50 ms x 1e-3 and 1e-2, which agrees with the ranking of twelve
// variants over LTE (2015) in its first places; the others follow what `trunkline bench cc` measured on queues.
var orders = map[Class][]string{
	Random:     {"bbr", "illinois", "yeah", "bic", "westwood", "veno", "hybla", "cubic", "htcp", "reno", "vegas", "highspeed", "lp"},
	Unknown:    noLoss,
	Clean:      noLoss,
	Congestive: {"illinois", "cubic", "bic", "htcp", "yeah", "highspeed", "veno", "westwood", "reno", "vegas", "hybla", "lp"},
	Shallow:    {"illinois", "cubic", "htcp", "bic", "yeah", "highspeed", "veno", "westwood", "reno", "hybla", "vegas", "lp"},
	Variable:   {"illinois", "cubic", "bic", "htcp", "yeah", "highspeed", "veno", "westwood", "reno", "vegas", "hybla", "lp"},
}

// ranked returns the candidates for a class, the best first. What ignores losses is only there for noise: elsewhere it would
// fill queues with what it sends again.
func ranked(candidates []string, class Class) []string {
	order := orders[class]
	place := func(name string) int {
		if i := slices.Index(order, family(name)); i >= 0 {
			return i
		}
		return len(order)
	}
	list := slices.Clone(candidates)
	if class != Random {
		list = slices.DeleteFunc(list, ignoresLoss)
	}
	slices.SortStableFunc(list, func(a, b string) int { return place(a) - place(b) })
	if len(list) == 0 {
		return slices.Clone(candidates) // of nothing else there is a choice
	}
	return list
}
