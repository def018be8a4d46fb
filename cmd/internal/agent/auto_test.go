// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/pathdb"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// A flow of a rule with auto has the prior from its first packet, its path gets a choice that everything shows, and what is no
// candidate any more is replaced under the live flow.
func TestAutoGivesAndShows(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s, nosuchcc]}", w.other))
	w.start()
	end := w.send()
	f := w.flow("with the prior", func(f control.Flow) bool { return f.Auto && f.Congestion == w.other && f.Choice != nil })
	if f.Choice.Prefix != w.path || f.Choice.Chosen != w.other || f.Choice.Why == "" || f.Choice.DryRun {
		t.Errorf("the flow's choice is %+v", f.Choice)
	}
	e := w.explain()
	if e == nil || e.Path != w.path || e.New != w.other || e.Prior != w.other || len(e.Choices) != 1 || !e.Asked || e.Exempt != "" {
		t.Errorf("explain: %+v", e)
	}
	if len(e.Candidates) != 2 || !e.Candidates[0].Usable || e.Candidates[1].Usable || !strings.Contains(e.Candidates[1].Remedy, "modprobe tcp_nosuchcc") {
		t.Errorf("candidates: %+v", e.Candidates)
	}
	if !strings.Contains(w.log(), "name=nosuchcc why=") {
		t.Error("the log does not mention the candidate that is left out")
	}
	s, err := w.agent.Control().Status(t.Context())
	if err != nil || s.Auto == nil || s.Auto.Paths != 1 || s.Auto.Chosen[w.other] != 1 || s.Auto.Changes != 0 || s.Auto.DryRun || s.Auto.StateError != "" {
		t.Errorf("status: %+v, %v", s.Auto, err)
	}
	paths, err := w.agent.Control().Paths(t.Context())
	if err != nil || !slices.ContainsFunc(paths, func(p control.Path) bool { return p.Prefix == w.path && p.Choice != nil && p.Choice.Chosen == w.other }) {
		t.Errorf("paths: %+v, %v", paths, err)
	}

	w.configure("auto", fmt.Sprintf("{candidates: [%s]}", w.kernel))
	w.reload()
	f = w.flow("after a change of candidates", func(f control.Flow) bool { return f.Congestion == w.kernel })
	if f.Choice == nil || f.Choice.Chosen != w.kernel || f.Choice.Previous != w.other || len(f.Choice.History) != 1 ||
		f.Choice.History[0].Old != w.other || f.Choice.History[0].New != w.kernel {
		t.Errorf("the flow's choice is %+v", f.Choice)
	}
	if text := w.log(); !strings.Contains(text, "another congestion control is chosen for a path") ||
		!strings.Contains(text, fmt.Sprintf("path=%s old=%s new=%s why=", w.path, w.other, w.kernel)) {
		t.Errorf("the log does not tell of the change%s", labagent.Tail(w.agent.Log()))
	}
	end()
	w.stop()
}

// A dry run sets nothing and says what it would.
func TestAutoDryRun(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s], dry_run: true}", w.other))
	w.start()
	end := w.send()
	f := w.flow("in a dry run", func(f control.Flow) bool { return f.Auto && f.Choice != nil })
	if f.Congestion != w.kernel || f.Choice.Chosen != w.other || !f.Choice.DryRun {
		t.Errorf("the flow has %s, its choice is %+v", f.Congestion, f.Choice)
	}
	e := w.explain()
	if !e.DryRun || e.New != "" || e.Prior != w.other || len(e.Choices) != 1 || e.Choices[0].Chosen != w.other {
		t.Errorf("explain: %+v", e)
	}
	// Switched on, it takes the live flow along.
	w.configure("auto", fmt.Sprintf("{candidates: [%s]}", w.other))
	w.reload()
	w.flow("after the dry run", func(f control.Flow) bool { return f.Congestion == w.other })
	end()
	w.stop()
}

// Rules come to say auto, and cease to, without a restart.
func TestAutoReload(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	for i, step := range []struct {
		congestion, auto, want string
		follows                bool
	}{
		{w.kernel, "", w.kernel, false},
		{"auto", fmt.Sprintf("{candidates: [%s]}", w.other), w.other, true},
		{w.kernel, "", w.kernel, false},
		{"auto", fmt.Sprintf("{candidates: [%s], dry_run: true}", w.other), w.kernel, true},
		{"auto", fmt.Sprintf("{candidates: [%s]}", w.other), w.other, true},
	} {
		w.configure(step.congestion, step.auto)
		if i == 0 {
			w.start()
		} else {
			w.reload()
		}
		end := w.send()
		f := w.flow(fmt.Sprintf("step %d", i), func(control.Flow) bool { return true })
		if f.Congestion != step.want || f.Auto != step.follows {
			t.Errorf("step %d: %s, follows %v; want %s, %v", i, f.Congestion, f.Auto, step.want, step.follows)
		}
		if s, err := w.agent.Control().Status(t.Context()); err != nil || (s.Auto != nil) != step.follows {
			t.Errorf("step %d: status %+v, %v", i, s.Auto, err)
		}
		end()
		w.gone()
	}
	w.stop()
}

// What was chosen is kept over a restart, and the first flow has it; a database that is damaged costs that and no more.
func TestAutoRestart(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s, %s]}", w.kernel, w.other))
	c, err := config.Load(w.agent.Config())
	if err != nil {
		t.Fatal(err)
	}
	// What nobody would choose for a path unknown.
	chosen := w.kernel
	if choice.New(choice.Options{Candidates: c.Auto.Candidates}).Prior() == chosen {
		chosen = w.other
	}
	now := time.Now()
	before := choice.Record{Path: choice.Path{Prefix: w.path}, Updated: now.Add(-time.Hour), Chosen: chosen, Class: choice.Random,
		Why: "told by the test", Since: now.Add(-2 * time.Hour)}
	db, _, err := pathdb.Open(c.PathDB(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Save(now, []choice.Record{before}), db.Close()); err != nil {
		t.Fatal(err)
	}
	w.start()
	if e := w.explain(); e.New != chosen || len(e.Choices) != 1 || e.Choices[0].Why != before.Why {
		t.Errorf("before any flow: %+v", e)
	}
	end := w.send()
	w.flow("after a restart", func(f control.Flow) bool {
		return f.Congestion == chosen && f.Choice != nil && f.Choice.Updated.After(now)
	})
	end()
	w.stop()
	db, found, err := pathdb.Open(c.PathDB(), time.Now())
	if err != nil || len(found) != 1 || found[0].Chosen != chosen || !found[0].Updated.After(before.Updated) {
		t.Errorf("the database holds %+v, %v", found, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(c.PathDB(), []byte("no database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if e := w.explain(); e.New == chosen || len(e.Choices) != 0 {
		t.Errorf("after the damage: %+v", e)
	}
	if _, err := os.Stat(c.PathDB() + ".damaged"); err != nil || !strings.Contains(w.log(), "the database of paths was damaged") {
		t.Errorf("the damaged file: %v%s", err, labagent.Tail(w.agent.Log()))
	}
	w.stop()
}

// What is on this host or on-link is no path.
func TestAutoExempt(t *testing.T) {
	h := newHost(t)
	client, _ := h.run(h.write("rules: [{name: all, remote: 0.0.0.0/0, congestion: auto}]\nauto: {candidates: [nosuchcc]}\n"))
	e, err := client.Explain(t.Context(), netip.MustParseAddrPort("127.0.0.1:80"))
	if err != nil || e.Auto == nil || e.Auto.Exempt != "the address is this host's" || e.Auto.New != "" {
		t.Errorf("explain: %+v, %v", e.Auto, err)
	}
	s, err := client.Status(t.Context())
	if err != nil || s.Health != control.Degraded || !strings.Contains(strings.Join(s.Problems, "\n"), "no candidate that this kernel has") {
		t.Errorf("without a usable candidate: %s, %v, %v", s.Health, s.Problems, err)
	}
}

// Losses that come whatever the queue are noise: the path gets what does not take them for congestion, and the flow that is
// under way follows. The bounds are wide; how well it is chosen is measured elsewhere.
func TestAutoMeetsNoise(t *testing.T) {
	_, err := cc.Probe()
	testkit.NeedFeature(t, "struct-ops", err)
	if have, err := cc.Available(); err != nil || !slices.Contains(have, "bbr") {
		testkit.NeedFeature(t, "bbr", fmt.Errorf("it has %v, %v", have, err))
	}
	testkit.NeedTime(t)
	// A long path, delayed by the kernel if it can: what a busy host adds to a round trip must not look like a queue.
	o := lab.Options{Rate: 40e6, RTT: 200 * time.Millisecond, Loss: 0.02, LossAB: true, Seed: 7}
	if lab.HaveNetem() == nil {
		o.Emulation = lab.InKernel
	}
	w := newWAN(t, o)
	w.patience = time.Minute
	w.configure("auto", "")
	w.start()
	end := w.send()
	w.flow("at first", func(f control.Flow) bool { return f.Congestion == "tl_illinois" })
	f := w.flow("under noise", func(f control.Flow) bool { return f.Congestion == "bbr" })
	if f.LossEvents == 0 || f.Choice == nil || f.Choice.Class != string(choice.Random) || f.Choice.Previous != "tl_illinois" {
		t.Errorf("%d loss events, the choice is %+v", f.LossEvents, f.Choice)
	}
	if text := w.log(); !strings.Contains(text, "old=tl_illinois new=bbr why=") {
		t.Errorf("the log does not tell of it%s", labagent.Tail(w.agent.Log()))
	}
	end()
	w.stop()
}
