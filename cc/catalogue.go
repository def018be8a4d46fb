// SPDX-License-Identifier: Apache-2.0

// Package cc brings congestion controls to kernels that ship few: each is a struct_ops program below algorithm/, listed in
// the catalogue, and registered in the kernel under its name while someone needs it. The package knows nothing of rules.
package cc

import (
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/cc/algorithm"
)

// Reaction says what makes an algorithm slow down.
type Reaction string

// The reactions.
const (
	Loss         Reaction = "loss"
	Delay        Reaction = "delay"
	LossAndDelay Reaction = "loss, delay"
)

// Algorithm is a congestion control that trunkline brings along.
type Algorithm struct {
	Name   string // in the kernel, and in rules
	Reacts Reaction
	Source string // the paper or RFC
	load   func() (*ebpf.CollectionSpec, error)
	shows  string // the fields of its state that people want to see
}

var catalogue = []Algorithm{
	{"tl_reno", Loss, "RFC 5681", algorithm.LoadReno, ""},
	{"tl_cubic", Loss, "RFC 9438, HyStart", algorithm.LoadCubic, "max_cwnd k_1024ths rtt_min_us reno_cwnd"},
	{"tl_illinois", LossAndDelay, "Liu, Basar, Srikant 2006", algorithm.LoadIllinois, "alpha_x128 beta_x64 queue_us base_rtt_us max_rtt_us"},
	{"tl_westwood", Loss, "Grieco, Mascolo 2004", algorithm.LoadWestwood, "bandwidth_Bptick rtt_min_ticks"},
	{"tl_yeah", LossAndDelay, "Baiocchi, Castellani, Vacirca 2007", algorithm.LoadYeah, "queue_packets slow_rounds reno_cwnd base_rtt_us"},
	{"tl_bic", Loss, "Xu, Harfoush, Rhee 2004", algorithm.LoadBic, "max_cwnd count"},
	{"tl_veno", LossAndDelay, "Fu, Liew 2003", algorithm.LoadVeno, "queue_x2 base_rtt_us"},
	{"tl_htcp", LossAndDelay, "Leith, Shorten 2004", algorithm.LoadHtcp, "alpha_x128 beta_x128 rtt_min_ticks rtt_max_ticks rate_pps"},
	{"tl_vegas", LossAndDelay, "Brakmo, Peterson 1995", algorithm.LoadVegas, "queue_packets base_rtt_us"},
	{"tl_hybla", Loss, "Caini, Firrincieli 2004", algorithm.LoadHybla, "rho_x8 rtt_min_us_x8"},
	{"tl_highspeed", Loss, "RFC 3649", algorithm.LoadHighspeed, "row"},
	{"tl_lp", LossAndDelay, "Kuzmanovic, Knightly 2006", algorithm.LoadLp, "queue_ms span_ms"},
}

// Catalogue returns the algorithms that trunkline brings along, in the order of the catalogue.
func Catalogue() []Algorithm { return slices.Clone(catalogue) }

// Lookup finds an algorithm of the catalogue by name.
func Lookup(name string) (Algorithm, bool) {
	i := slices.IndexFunc(catalogue, func(a Algorithm) bool { return a.Name == name })
	if i < 0 {
		return Algorithm{}, false
	}
	return catalogue[i], true
}
