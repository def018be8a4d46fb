// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// mapsOnly is a loader with its maps and nothing attached.
func mapsOnly(t *testing.T) *Loader {
	t.Helper()
	testkit.NeedRoot(t)
	led, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	l := &Loader{log: slog.New(slog.DiscardHandler), maps: map[string]*ebpf.Map{}, dests: map[netip.Prefix]destination{}}
	l.o.Ledger = led
	if err := l.createMaps(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		led.Close()
	})
	return l
}

// findRule does the programs' two look-ups from user space; slow says that it was held up in between.
func findRule(t *testing.T, l *Loader, a netip.Addr, port uint16) (id uint32, slow bool) {
	t.Helper()
	start := time.Now()
	defer func() { slow = time.Since(start) > deletionGrace/2 }()
	var class uint32
	if err := l.maps["tl_class"].Lookup(bpf.PrefixFrom(netip.PrefixFrom(a, a.BitLen())), &class); err != nil {
		return 0, false
	}
	var r bpf.Rule
	if err := l.maps["tl_rule"].Lookup(bpf.ClassPort{ClassId: class, Port: port}, &r); err == nil {
		return r.RuleId, false
	}
	if err := l.maps["tl_rule"].Lookup(bpf.ClassPort{ClassId: class}, &r); err == nil {
		return r.RuleId, false
	}
	return 0, false
}

// covering is a random set of rules with one for every IPv4 flow, with ids from base.
func covering(r *rand.Rand, base uint32) []policy.Rule {
	rules := []policy.Rule{{ID: base, Remote: netip.MustParsePrefix("0.0.0.0/0")}}
	for i := range uint32(8) {
		next := policy.Rule{ID: base + 1 + i, Remote: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(2))}), 8+r.IntN(25))}
		for range r.IntN(3) {
			next.Ports = append(next.Ports, uint16(80+r.IntN(3)))
		}
		if _, err := policy.Build(append(rules, next)); err == nil {
			rules = append(rules, next)
		}
	}
	return rules
}

func TestReloadLeavesNoGap(t *testing.T) {
	l := mapsOnly(t)
	r := rand.New(rand.NewPCG(5, 6))
	old := covering(r, 1000)
	if err := l.Apply(old, nil); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for round := range uint32(testkit.Count(40, 10)) {
		next := covering(r, 1000+(round+1)*100)
		before, _ := policy.Build(old)
		after, _ := policy.Build(next)
		done := make(chan error)
		go func() { done <- l.Apply(next, nil) }()
		for applied := false; !applied; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				applied = true
			default:
			}
			a, port := netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(2))}), uint16(80+r.IntN(3))
			got, slow := findRule(t, l, a, port)
			was, _ := before.Lookup(a, port)
			will, _ := after.Lookup(a, port)
			if got != was.ID && got != will.ID && !slow {
				t.Fatalf("round %d: %s port %d finds rule %d, neither the old %d nor the new %d", round, a, port, got, was.ID, will.ID)
			}
			if applied && got != will.ID {
				t.Fatalf("round %d: %s port %d finds rule %d afterwards, not %d", round, a, port, got, will.ID)
			}
			checked++
		}
		old = next
	}
	if err := l.Apply(nil, nil); err != nil {
		t.Fatal(err)
	}
	classes, _ := snapshot[bpf.Prefix, uint32](l.maps["tl_class"])
	rules, _ := snapshot[bpf.ClassPort, bpf.Rule](l.maps["tl_rule"])
	if len(classes)+len(rules) > 0 {
		t.Errorf("left without rules: %v %v", classes, rules)
	}
	t.Logf("%d look-ups", checked)
}

func TestBadRulesChangeNothing(t *testing.T) {
	l := mapsOnly(t)
	good := policy.Rule{ID: 1, Name: "good", Remote: netip.MustParsePrefix("10.0.0.0/8")}
	if err := l.Apply([]policy.Rule{good}, nil); err != nil {
		t.Fatal(err)
	}
	equal := good
	equal.ID, equal.Name = 2, "equal"
	stranger := policy.Rule{ID: 2, Name: "stranger", Remote: netip.MustParsePrefix("10.1.0.0/16"), ExcludeUsers: []string{"nobody-of-this-name"}}
	for _, bad := range [][]policy.Rule{{good, equal}, {good, stranger}} {
		if err := l.Apply(bad, nil); err == nil || !strings.Contains(err.Error(), bad[1].Name) {
			t.Errorf("%v: %v", bad, err)
		}
		if id, _ := findRule(t, l, netip.MustParseAddr("10.1.2.3"), 80); id != 1 {
			t.Errorf("afterwards rule %d is in force", id)
		}
	}
}

func TestExcludesAreResolved(t *testing.T) {
	l := mapsOnly(t)
	root, err := cgroup2Mount("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	name := "tl-test-" + strconv.Itoa(os.Getpid())
	rule := policy.Rule{ID: 7, Name: "x", Remote: netip.MustParsePrefix("10.0.0.0/8"), ExcludeUsers: []string{"root", "4242"}, ExcludeCgroups: []string{name}}
	if err := l.Apply([]policy.Rule{rule}, nil); err != nil {
		t.Fatal(err)
	}
	excludes := func() map[bpf.ExcludeKey]uint32 {
		m, err := snapshot[bpf.ExcludeKey, uint32](l.maps["tl_exclude"])
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	user := func(id uint64) bpf.ExcludeKey { return bpf.ExcludeKey{RuleId: 7, Kind: bpf.ExcludeUser, Id: id} }
	if m := excludes(); len(m) != 2 || m[user(0)] != 1 || m[user(4242)] != 1 {
		t.Errorf("%v", m)
	}
	// The service's cgroup comes, and goes again.
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	l.refreshRules()
	id, err := l.cgroupID(name)
	if err != nil {
		t.Fatal(err)
	}
	if m := excludes(); len(m) != 3 || m[bpf.ExcludeKey{RuleId: 7, Kind: bpf.ExcludeCgroup, Id: id}] != 1 {
		t.Errorf("%v", m)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	l.refreshRules()
	if m := excludes(); len(m) != 2 {
		t.Errorf("%v", m)
	}
}

func readMax(t *testing.T, name string) uint64 {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestBufferMaximaAreRaisedWhileNeeded(t *testing.T) {
	l := mapsOnly(t)
	rcv, snd := readMax(t, rmemMax), readMax(t, wmemMax)
	window := func(n uint64) policy.Rule {
		return policy.Rule{ID: 1, Name: "wide", Remote: netip.MustParsePrefix("10.0.0.0/8"), WindowBytes: uint32(n)}
	}
	apply := func(wantRcv uint64, rules ...policy.Rule) {
		t.Helper()
		if err := l.Apply(rules, nil); err != nil {
			t.Fatal(err)
		}
		need(t, l, "window")
		if r, s := readMax(t, rmemMax), readMax(t, wmemMax); r != wantRcv || s != snd {
			t.Fatalf("%s is %d, want %d; %s is %d, want %d", rmemMax, r, wantRcv, wmemMax, s, snd)
		}
	}
	apply(rcv, window(rcv))
	apply(rcv+1<<20, window(rcv+1<<20))
	apply(rcv+2<<20, window(rcv+2<<20))
	apply(rcv+1<<20, window(rcv+1<<20)) // no higher than a rule needs
	apply(rcv)
	apply(rcv+1<<20, window(rcv+1<<20))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if r := readMax(t, rmemMax); r != rcv {
		t.Errorf("%s is %d after Close, was %d", rmemMax, r, rcv)
	}
}
