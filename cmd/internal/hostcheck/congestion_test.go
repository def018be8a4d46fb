// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"slices"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/internal/testkit"
)

// reno is built into every kernel.
func TestCandidates(t *testing.T) {
	all := Candidates([]string{"nosuchcc", "reno", "tl_nosuch"})
	if got := Usable(all); !slices.Equal(got, []string{"reno"}) {
		t.Errorf("usable %v, want reno alone", got)
	}
	for i, want := range []string{"modprobe tcp_nosuchcc", "", "correct it, see `trunkline cc`"} {
		if c := all[i]; c.Usable() != (want == "") || !strings.Contains(c.Remedy, want) {
			t.Errorf("%s: %+v, want the remedy %q", c.Name, c, want)
		}
	}
}

func TestOwnCandidates(t *testing.T) {
	testkit.NeedRoot(t)
	_, err := cc.Probe()
	c := Candidates([]string{"tl_cubic"})[0]
	if c.Usable() != (err == nil) || c.Usable() != (c.Remedy == "") {
		t.Errorf("%+v, and the kernel says %v", c, err)
	}
}

func TestAutoFindings(t *testing.T) {
	auto := []config.Rule{{Name: "r", Auto: true}}
	for _, tc := range []struct {
		name       string
		candidates []string
		rules      []config.Rule
		dryRun     bool
		level      Level
		text       string
	}{
		{"some", []string{"reno"}, auto, false, OK, "chooses from reno"},
		{"dry run", []string{"reno"}, auto, true, OK, "chooses from reno (dry run: nothing is set)"},
		{"one is missing", []string{"nosuchcc", "reno"}, auto, false, Warning, "candidate nosuchcc is left out: this kernel does not offer it now; modprobe tcp_nosuchcc"},
		{"not ours", []string{"tl_nosuch", "reno"}, auto, false, Warning, "trunkline has no algorithm of this name"},
		{"no rule", []string{"nosuchcc"}, nil, false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &report{}
			congestion(r, &config.Config{Rules: tc.rules, Auto: config.Auto{Candidates: tc.candidates, DryRun: tc.dryRun}})
			if got := find(r.findings, "auto"); got.Level != tc.level || !strings.Contains(got.Text, tc.text) {
				t.Errorf("got %+v, want %s with %q", got, tc.level, tc.text)
			}
		})
	}
	r := &report{}
	congestion(r, &config.Config{Rules: auto, Auto: config.Auto{Candidates: []string{"nosuchcc"}}})
	if last := r.findings[len(r.findings)-1]; last.Level != Warning || !strings.Contains(last.Text, "no candidate can be had") {
		t.Errorf("without a usable candidate: %+v", r.findings)
	}
}

// Modules come and go; what was said of trunkline's own holds, since asking costs a program.
func TestRefresh(t *testing.T) {
	before := []Candidate{{Name: "reno", Why: "gone"}, {Name: "nosuchcc"}, {Name: "tl_cubic", Why: "no struct_ops"}, {Name: "tl_reno"}}
	now := Refresh(before)
	if got := Usable(now); !slices.Equal(got, []string{"reno", "tl_reno"}) || now[1].Remedy == "" || now[2] != before[2] {
		t.Errorf("got %+v", now)
	}
	if before[0].Usable() || !before[1].Usable() {
		t.Errorf("what was given is changed: %+v", before)
	}
}
