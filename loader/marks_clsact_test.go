// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// The lab's device is a TUN, without a link header; TestKilledClsactFilterDoesNothing goes through a veth.
func TestClsactMarksEveryRetransmission(t *testing.T) {
	inside(t, lossy, func(t *testing.T, s site) {
		needClsact(t)
		led := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
		rules := []policy.Rule{{ID: 1, Name: "four", Remote: netip.PrefixFrom(s.A4, 0), Priority: bpf.PriorityRetransmit}}
		if s.B6.IsValid() {
			rules = append(rules, policy.Rule{ID: 2, Name: "six", Remote: netip.PrefixFrom(s.B6, 64), Priority: bpf.PriorityRetransmit})
		}
		l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Ledger: led, Rules: rules, forceClsact: true,
			Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if f := feature(t, l, "marks"); !f.On || f.Detail != "code point 10 on wan0 (clsact)" {
			t.Fatalf("%+v", f)
		}
		for _, b := range s.dests() {
			transfer(t, dialAt(t, b, sinkPort), int(testkit.Size(6<<20, 2<<20)))
		}
		gone(t, l)
		var i bpf.Iface
		if err := l.maps["tl_iface"].Lookup(ifindex(t, "wan0"), &i); err != nil || i.Marked == 0 || i.Seen <= i.Marked {
			t.Errorf("interface %+v %v", i, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wantAt(t, linkNamed(t, "wan0"))
		if left, err := led.Entries(); err != nil || len(left) > 0 {
			t.Errorf("left in the ledger: %v %v", left, err)
		}
	}, func(t *testing.T, l *lab.Lab) {
		st := l.Link.AB.Stats()
		t.Logf("on the wire: %+v", st)
		if st.Retransmits < 50 || st.RetransmitsMarked != st.Retransmits || st.FirstMarked != 0 {
			t.Errorf("%d of %d retransmissions marked, %d first transmissions marked", st.RetransmitsMarked, st.Retransmits, st.FirstMarked)
		}
	})
}

// What others have at the interface is there before, meanwhile and afterwards, and ours stands before it.
func TestClsactBesideOthers(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	for name, c := range map[string]struct {
		theirs []otherFilter
		ours   string
	}{
		"an empty qdisc":      {nil, "egress 4096 tl_dscp:one"},
		"the kernel's choice": {[]otherFilter{{}, {ingress: true}}, "egress 4096 tl_dscp:one"},
		"before the usual":    {[]otherFilter{{priority: 300, ends: true}, {ingress: true, priority: 1}}, "egress 299 tl_dscp:one"},
		"no room before":      {[]otherFilter{{priority: 1}, {priority: 16}, {priority: 17}}, "egress 18 tl_dscp:one"},
		"our name elsewhere":  {[]otherFilter{{priority: 4096, name: "tl_dscp:two"}}, "egress 4095 tl_dscp:one"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVeth(t, "tl0", 0)
			defer netlink.LinkDel(v)
			if err := netlink.QdiscAdd(clsactQdisc(v)); err != nil {
				t.Fatal(err)
			}
			for _, o := range c.theirs {
				if err := addOther(t, v, o); err != nil {
					t.Fatal(err)
				}
			}
			theirs := atInterface(t, v)
			l, closeIt := loadClsact(t, "one", "tl0")
			if f := feature(t, l, "marks"); !f.On || f.Detail != "code point 10 on tl0 (clsact)" {
				t.Errorf("%+v", f)
			}
			wantAt(t, v, append(slices.Clone(theirs), c.ours)...)
			closeIt()
			wantAt(t, v, theirs...)
		})
	}
}

// The qdisc that we made goes with our filter, unless others have put something into it.
func TestClsactOwnQdisc(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	chain := func(t *testing.T, v netlink.Link) {
		if err := netlink.ChainAdd(v, netlink.NewChain(netlink.HANDLE_MIN_EGRESS, 5)); err != nil {
			t.Fatal(err)
		}
	}
	filter := func(o otherFilter) func(*testing.T, netlink.Link) {
		return func(t *testing.T, v netlink.Link) {
			if err := addOther(t, v, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, netlink.Link)
		left      []string
	}{
		"alone":              {nil, nil},
		"a filter at egress": {filter(otherFilter{priority: 9}), []string{"clsact", "egress 9 other"}},
		"one at ingress":     {filter(otherFilter{ingress: true, priority: 9}), []string{"clsact", "ingress 9 other"}},
		"at our preference":  {filter(otherFilter{priority: 4096}), []string{"clsact", "egress 4096 other"}},
		"an empty chain":     {chain, []string{"clsact"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVeth(t, "tl0", 0)
			defer netlink.LinkDel(v)
			_, closeIt := loadClsact(t, "one", "tl0")
			wantAt(t, v, "clsact", "egress 4096 tl_dscp+clsact:one")
			if c.meanwhile != nil {
				c.meanwhile(t, v)
			}
			closeIt()
			wantAt(t, v, c.left...)
		})
	}
}

// Two instances share an interface. The last of them takes the qdisc away that the first made.
func TestClsactTwoInstances(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	for _, firstCloses := range []bool{true, false} {
		v := newVeth(t, "tl0", 0)
		one, closeOne := loadClsact(t, "one", "tl0")
		_, closeTwo := loadClsact(t, "two", "tl0")
		wantAt(t, v, "clsact", "egress 4096 tl_dscp+clsact:one", "egress 4095 tl_dscp+clsact:two")
		if firstCloses {
			closeOne()
			wantAt(t, v, "clsact", "egress 4095 tl_dscp+clsact:two")
			_, closeOne = loadClsact(t, "one", "tl0") // and is back before the other goes
			wantAt(t, v, "clsact", "egress 4096 tl_dscp+clsact:one", "egress 4095 tl_dscp+clsact:two")
		} else {
			one.applyMu.Lock()
			one.readMarks() // nothing to do, nothing done
			one.applyMu.Unlock()
		}
		closeTwo()
		wantAt(t, v, "clsact", "egress 4096 tl_dscp+clsact:one")
		closeOne()
		wantAt(t, v)
		if err := netlink.LinkDel(v); err != nil {
			t.Fatal(err)
		}
	}
}

// Where an ingress qdisc is in the way, marks are off on that interface alone.
func TestClsactBehindIngress(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	a, b := newVeth(t, "tl0", 0), newVeth(t, "tl1", 0)
	if err := netlink.QdiscAdd(ingressQdisc(a)); err != nil {
		t.Fatal(err)
	}
	if err := addOther(t, a, otherFilter{ingress: true, priority: 3}); err != nil {
		t.Fatal(err)
	}
	l, closeIt := loadClsact(t, "one", "tl0")
	f := feature(t, l, "marks")
	if f.On || f.Detail != "not on tl0: an ingress qdisc of someone else is in the place of clsact" || !strings.Contains(f.Remedy, "tc qdisc add dev tl0 clsact") {
		t.Errorf("alone: %+v", f)
	}
	closeIt()
	l, closeIt = loadClsact(t, "one", "tl0", "tl1")
	if f = feature(t, l, "marks"); !f.On || !strings.HasPrefix(f.Detail, "code point 10 on tl1 (clsact); not on tl0: ") || f.Remedy == "" {
		t.Errorf("beside another: %+v", f)
	}
	closeIt()
	wantAt(t, a, "ingress", "ingress 3 other")
	wantAt(t, b)
}

func TestClsactNeedsALedger(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	l, err := Load(t.Context(), clsactOptions(t, nil, "one", "lo"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if f := feature(t, l, "marks"); f.On || !strings.Contains(f.Detail, "no ledger") || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
}
