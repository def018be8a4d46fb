// SPDX-License-Identifier: Apache-2.0

package config

import (
	"regexp"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/units"
)

var congestionName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,14}$`)

func (d *decoder) congestion(n ast.Node, r *Rule) {
	d.text(n, "congestion", func(s string) {
		if s == "auto" {
			r.Auto = true
			return
		}
		if d.algorithm(n, "congestion", "auto or an algorithm's name", s) {
			r.Congestion = s
		}
	})
}

// algorithm says whether the kernel could hold a name.
func (d *decoder) algorithm(n ast.Node, what, expected, s string) bool {
	switch {
	case len(s) > 15:
		d.failf(n, "%s %q is longer than the 15 characters the kernel has room for", what, s)
	case !congestionName.MatchString(s):
		d.failf(n, "%s %q must be %s, like bbr or cubic", what, s, expected)
	default:
		return true
	}
	return false
}

func (d *decoder) auto(n ast.Node, to *Auto) {
	d.autoAt = n
	d.mapping(n, "auto", autoKeys, fields{
		"candidates": func(n ast.Node) { d.candidates(n, to) },
		"dry_run":    func(n ast.Node) { d.flag(n, "dry_run", &to.DryRun) },
		"explore":    func(n ast.Node) { d.flag(n, "explore", &to.Explore) },
		"hold": func(n ast.Node) {
			d.duration(n, "hold", minHold, maxHold, func(v time.Duration) { to.Hold = v })
		},
	})
}

func (d *decoder) candidates(n ast.Node, to *Auto) {
	names := []string{}
	d.list(n, "candidates", func(n ast.Node) {
		d.text(n, "each of candidates", func(s string) {
			if !d.algorithm(n, "candidate", "an algorithm's name", s) {
				return
			}
			switch err := choice.CheckCandidate(s); {
			case s == "auto":
				d.failf(n, "candidate %q chooses itself; name algorithms, like tl_illinois (see `trunkline cc`)", s)
			case err != nil:
				d.failf(n, "candidate %q: %v; remove it", s, err)
			case slices.Contains(names, s):
				d.failf(n, "candidate %q is given twice; remove one", s)
			}
			names = append(names, s)
		})
	})
	if len(names) == 0 && len(d.problems) == 0 {
		d.failf(n, "candidates is empty; name some, or leave the key out to have %v", choice.DefaultCandidates)
	}
	to.Candidates = names
}

// flag reads true or false.
func (d *decoder) flag(n ast.Node, what string, to *bool) {
	var word string
	d.word(n, what, &word, "true", "false")
	*to = word == "true"
}

func (d *decoder) duration(n ast.Node, what string, low, high time.Duration, use func(time.Duration)) {
	d.text(n, what, func(s string) {
		v, err := units.Duration(s)
		switch {
		case err != nil:
			d.failf(n, "%s: %v", what, err)
		case v < low || v > high:
			d.failf(n, "%s %q must be from %s to %s", what, s, units.FormatDuration(low), units.FormatDuration(high))
		default:
			use(v)
		}
	})
}
