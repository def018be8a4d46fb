// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// ccModes are the ways in which this kernel registers congestion controls.
func ccModes(t *testing.T) []cc.Mode {
	t.Helper()
	mode, err := cc.Probe()
	testkit.NeedFeature(t, "struct-ops", err)
	if mode == cc.ByLink {
		return []cc.Mode{cc.ByLink, cc.ByMap}
	}
	return []cc.Mode{cc.ByMap}
}

func offered(t *testing.T, name string) bool {
	t.Helper()
	names, err := cc.Available()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(names, name)
}

// loadCC loads with a ledger and a lock directory in dir, which outlive the loader as they would outlive an agent.
func loadCC(t *testing.T, mode cc.Mode, dir, cgroup string, rules ...policy.Rule) *Loader {
	t.Helper()
	led, err := ledger.Open(LedgerPath(dir, "test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := led.Undo(slog.New(slog.DiscardHandler)); err != nil { // an agent begins so
		t.Fatal(err)
	}
	l, err := Load(t.Context(), Options{Instance: "test", Cgroup: cgroup, BPFFS: dir, Ledger: led, Rules: rules,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), lockDir: filepath.Join(dir, "locks"), ccMode: mode})
	if err != nil {
		t.Fatal(errors.Join(err, led.Close()))
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := led.Entries(); len(left) > 0 {
			t.Errorf("left in the ledger: %v", left)
		}
		led.Close()
	})
	return l
}

// An algorithm of ours is there while a rule names it, its flows have it to their end, and then nothing is left.
func TestAlgorithmsOfRules(t *testing.T) {
	inside(t, lan, func(t *testing.T, s site) {
		for _, mode := range ccModes(t) {
			t.Run(string(mode), func(t *testing.T) { algorithmsOfRules(t, s, mode) })
		}
	}, nil)
}

func algorithmsOfRules(t *testing.T, s site, mode cc.Mode) {
	dir := t.TempDir()
	rules := func(congestion string) []policy.Rule {
		return []policy.Rule{{ID: 1, Name: "all", Remote: full(s.B4), Congestion: congestion}}
	}
	l := loadCC(t, mode, dir, s.Cgroup, rules("reno")...)
	if f := feature(t, l, "struct-ops"); !f.On || f.Detail != "by "+string(mode) || offered(t, "tl_reno") {
		t.Errorf("before a rule names one: %+v, offered: %v", f, offered(t, "tl_reno"))
	}
	if err := l.Apply(rules("tl_reno"), nil); err != nil {
		t.Fatal(err)
	}
	if f := feature(t, l, "struct-ops"); !f.On || f.Detail != "by "+string(mode)+": tl_reno" {
		t.Errorf("feature %+v", f)
	}
	c := dialAt(t, s.B4, sinkPort)
	f := flowOf(t, l, c, func(f Flow) bool { return f.State == "established" })
	if f.Congestion != "tl_reno" || f.CongestionErrno != 0 {
		t.Errorf("flow %+v", f)
	}
	sendOnly(t, c, 1<<20)
	if err := l.Apply(rules("reno"), nil); err != nil {
		t.Fatal(err)
	}
	if offered(t, "tl_reno") {
		t.Error("it is there though no rule names it")
	}
	if got := congestionOf(t, c); got != "tl_reno" {
		t.Errorf("the live flow has %s", got)
	}
	transfer(t, c, 1<<20)
	showsInsides(t, l, s, rules("tl_illinois"))
	candidatesOfRules(t, l, s)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "locks")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// candidatesOfRules has ours chosen by path: they are there while a rule is auto, with the candidates as they are then.
func candidatesOfRules(t *testing.T, l *Loader, s site) {
	t.Helper()
	auto := policy.Rule{ID: 1, Name: "auto", Remote: full(s.B4), Congestion: "reno", Auto: true}
	l.SetCandidates([]string{"tl_reno", "tl_lp", "reno"})
	if offered(t, "tl_reno") {
		t.Error("it is there though no rule is auto")
	}
	for _, x := range []struct {
		candidates []string
		auto       bool
		want       string
	}{{[]string{"tl_reno", "tl_lp", "reno"}, true, "tl_lp, tl_reno"}, {[]string{"tl_lp"}, true, "tl_lp"}, {nil, false, ""}} {
		l.SetCandidates(x.candidates)
		auto.Auto = x.auto
		if err := l.Apply([]policy.Rule{auto}, nil); err != nil {
			t.Fatal(err)
		}
		if f := feature(t, l, "struct-ops"); !strings.HasSuffix(f.Detail, x.want) || offered(t, "tl_lp") != x.auto {
			t.Errorf("candidates %v, auto %v: %+v", x.candidates, x.auto, f)
		}
		if !x.auto {
			continue
		}
		choose(t, l, Choice{Prefix: full(s.B4), Congestion: "tl_lp"})
		c := dialAt(t, s.B4, sinkPort)
		if got := congestionOf(t, c); got != "tl_lp" {
			t.Errorf("a flow has %s, want what is chosen", got)
		}
		transfer(t, c, 100_000)
	}
}

// showsInsides looks for what an algorithm keeps of a flow, which the kernel's own interfaces do not show.
func showsInsides(t *testing.T, l *Loader, s site, rules []policy.Rule) {
	t.Helper()
	if err := l.Apply(rules, nil); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		// Half of all connections begin at numbers at which an algorithm that began before its connection would never count a
		// round, and so stay what it is at first.
		c := dialAt(t, s.B4, sinkPort)
		sendOnly(t, c, 300_000)
		f := flowOf(t, l, c, func(f Flow) bool { return f.BytesAcked > 100_000 })
		if a := f.Algorithm; a["alpha"] == 10 && a["beta"] == 0.5 && a["queue_us"] == 0 {
			t.Errorf("Illinois has counted no round: %v", a)
		}
		transfer(t, c, 0)
	}
	c := dialAt(t, s.B4, sinkPort)
	sendOnly(t, c, 1<<20)
	f := flowOf(t, l, c, func(f Flow) bool { return f.BytesAcked > 1<<19 })
	if a, b := f.Algorithm["alpha"], f.Algorithm["beta"]; a < 0.29 || a > 10 || b < 0.125 || b > 0.5 || f.CwndPackets == 0 {
		t.Errorf("Illinois is %v at a window of %d packets", f.Algorithm, f.CwndPackets)
	}
	transfer(t, c, 0)
}

const ccKilledEnv = "TL_TEST_CC_KILLED"

// An agent was killed: cleanup takes its algorithm away where it stayed, and so does the next start.
func TestAlgorithmsAfterKill(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	rule := policy.Rule{ID: 1, Name: "all", Remote: netip.MustParsePrefix("0.0.0.0/0"), Congestion: "tl_reno"}
	if spec := os.Getenv(ccKilledEnv); spec != "" {
		mode, dir, _ := strings.Cut(spec, " ")
		loadCC(t, cc.Mode(mode), dir, testenv.Cgroup(), rule)
		os.Stdout.WriteString("ready\n")
		select {}
	}
	for _, mode := range ccModes(t) {
		t.Run(string(mode), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(ccKilledEnv, string(mode)+" "+dir)
			killRegistrant(t)
			if got := offered(t, "tl_reno"); got != (mode == cc.ByMap) {
				t.Errorf("after the kill it is there: %v", got)
			}
			results, err := Cleanup(t.Context(), dir, "test", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
			}
			for _, r := range results {
				if r.Outcome != ledger.Restored {
					t.Errorf("%s %s: %s %s", r.Entry.Kind, r.Entry.Target, r.Outcome, r.Detail)
				}
			}
			if mode == cc.ByMap && len(results) != 2 || offered(t, "tl_reno") {
				t.Errorf("after cleanup it is there: %v; %+v", offered(t, "tl_reno"), results)
			}
			killRegistrant(t)
			l := loadCC(t, mode, dir, testenv.Cgroup(), rule)
			if f := feature(t, l, "struct-ops"); !f.On || strings.Contains(f.Detail, "shared") {
				t.Errorf("after a kill: %+v", f)
			}
		})
	}
}

// killRegistrant starts an agent as a process and kills it when it is ready.
func killRegistrant(t *testing.T) {
	t.Helper()
	agent := startAgent(t)
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // "signal: killed"
}
