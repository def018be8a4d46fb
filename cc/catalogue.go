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
}

var catalogue = []Algorithm{
	{"tl_reno", Loss, "RFC 5681", algorithm.LoadReno},
	{"tl_cubic", Loss, "RFC 9438, HyStart", algorithm.LoadCubic},
	{"tl_illinois", LossAndDelay, "Liu, Basar, Srikant 2006", algorithm.LoadIllinois},
	{"tl_westwood", Loss, "Grieco, Mascolo 2004", algorithm.LoadWestwood},
	{"tl_yeah", LossAndDelay, "Baiocchi, Castellani, Vacirca 2007", algorithm.LoadYeah},
	{"tl_bic", Loss, "Xu, Harfoush, Rhee 2004", algorithm.LoadBic},
	{"tl_veno", LossAndDelay, "Fu, Liew 2003", algorithm.LoadVeno},
	{"tl_htcp", LossAndDelay, "Leith, Shorten 2004", algorithm.LoadHtcp},
	{"tl_vegas", LossAndDelay, "Brakmo, Peterson 1995", algorithm.LoadVegas},
	{"tl_hybla", Loss, "Caini, Firrincieli 2004", algorithm.LoadHybla},
	{"tl_highspeed", Loss, "RFC 3649", algorithm.LoadHighspeed},
	{"tl_lp", LossAndDelay, "Kuzmanovic, Knightly 2006", algorithm.LoadLp},
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
