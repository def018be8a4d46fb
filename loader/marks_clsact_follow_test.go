// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

func look(l *Loader) {
	l.applyMu.Lock()
	defer l.applyMu.Unlock()
	l.readMarks()
}

// Interfaces go and come, under the same number or another, and are renamed. The ledger never holds more than is there.
func TestClsactFollowsInterfaces(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	v := newVeth(t, "tl0", 0)
	l, closeIt := loadClsact(t, "one", "tl0")
	ours := []string{"clsact", "egress 4096 tl_dscp+clsact:one"}
	want := func(what string, kinds ...ledger.Kind) {
		t.Helper()
		look(l)
		if got := kindsIn(t, l.o.Ledger); !slices.Equal(got, kinds) {
			t.Errorf("%s: the ledger holds %v, want %v", what, got, kinds)
		}
	}
	want("at first", ledger.ClsactFilter)

	if err := netlink.LinkDel(v); err != nil {
		t.Fatal(err)
	}
	want("removed")
	again := newVeth(t, "tl0", 0)
	want("created again", ledger.ClsactFilter)
	wantAt(t, again, ours...)

	// So fast that nobody sees it go.
	if err := netlink.LinkDel(again); err != nil {
		t.Fatal(err)
	}
	again = newVeth(t, "tl0", again.Attrs().Index)
	wantAt(t, again)
	want("replaced under its number", ledger.ClsactFilter)
	wantAt(t, again, ours...)

	rename := func(l netlink.Link, name string) {
		t.Helper()
		if err := netlink.LinkSetDown(l); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetName(l, name); err != nil {
			t.Fatal(err)
		}
	}
	rename(again, "tl9")
	want("renamed: no longer one of those configured")
	wantAt(t, again)
	rename(again, "tl0")
	want("renamed back", ledger.ClsactFilter)
	rename(again, "tl8") // which nobody has noticed when we close
	closeIt()
	wantAt(t, again)
}

// A filter that someone takes away, alone or with the qdisc, is put back; their qdisc is theirs then.
func TestClsactIsPutBack(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	v := newVeth(t, "tl0", 0)
	l, closeIt := loadClsact(t, "one", "tl0")
	filter := l.marks.attached[v.Attrs().Index].(*clsactAttachment).filter
	err := netlink.FilterDel(&netlink.BpfFilter{Fd: -1, FilterAttrs: netlink.FilterAttrs{LinkIndex: v.Attrs().Index,
		Parent: netlink.HANDLE_MIN_EGRESS, Priority: filter.Priority, Handle: filter.Handle, Protocol: 3}})
	if err != nil {
		t.Fatal(err)
	}
	wantAt(t, v, "clsact")
	look(l)
	wantAt(t, v, "clsact", "egress 4096 tl_dscp:one") // whose the qdisc is now cannot be known
	if err := netlink.QdiscDel(clsactQdisc(v)); err != nil {
		t.Fatal(err)
	}
	look(l)
	wantAt(t, v, "clsact", "egress 4096 tl_dscp+clsact:one")
	if err := netlink.QdiscDel(clsactQdisc(v)); err != nil {
		t.Fatal(err)
	}
	if err := netlink.QdiscAdd(clsactQdisc(v)); err != nil {
		t.Fatal(err)
	}
	look(l)
	wantAt(t, v, "clsact", "egress 4096 tl_dscp:one")
	closeIt()
	wantAt(t, v, "clsact")
}
