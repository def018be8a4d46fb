// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/clsact"
	"github.com/trunkline/trunkline/loader/internal/netns"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

// farClass sends a packet whose mark has the bit of ours and returns the traffic class with which it comes to the far side.
func farClass(t *testing.T, w *testenv.World) byte {
	t.Helper()
	var conn net.PacketConn
	var err error
	w.InFar(func() { conn, err = net.ListenPacket("udp4", testenv.Far4+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1) }); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, DefaultMarkBit|7); err != nil {
		t.Fatal(err)
	}
	to := sockaddr(unix.AF_INET, testenv.Far4, uint16(conn.LocalAddr().(*net.UDPAddr).Port))
	if err := unix.Sendto(fd, []byte("of someone else"), 0, to); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(testkit.Wait(5 * time.Second))); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, 64)
	_, n, _, _, err := conn.(*net.UDPConn).ReadMsgUDP(make([]byte, 64), oob)
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		t.Fatal(msgs, err)
	}
	return msgs[0].Data[0]
}

// What a killed agent leaves at an interface does nothing, and cleanup takes it away.
func TestKilledClsactFilterDoesNothing(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if isAgent(t, "near") {
		return
	}
	needClsact(t)
	w := testenv.NewWorld(t)
	state := killAgent(t, func() {
		if class := farClass(t, w); class != DefaultDSCP<<2 {
			t.Errorf("while the agent runs: class %#x, want %#x", class, DefaultDSCP<<2)
		}
	})
	eventually(t, "the left filter writes no more", func() bool { return farClass(t, w) == 0 })
	wantAt(t, w.Near, "clsact", "egress 4096 tl_dscp+clsact:killed")
	left, err := outcomesOf(t, state)
	if err != nil || len(left) != 1 || left[0].Entry.Target != "near" || left[0].Outcome != ledger.Restored {
		t.Errorf("%+v %v", left, err)
	}
	wantAt(t, w.Near)
	if left, err := outcomesOf(t, state); err != nil || len(left) != 0 {
		t.Errorf("the second time: %+v %v", left, err)
	}
}

// The next agent takes away what the killed one left, before it begins.
func TestKilledClsactFilterGoesWithTheNextStart(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if isAgent(t, "tl0") {
		return
	}
	needClsact(t)
	v := newVeth(t, "tl0", 0)
	if err := addOther(t, newQdisc(t, v), otherFilter{priority: 50000}); err != nil {
		t.Fatal(err)
	}
	for range testkit.Count(3, 1) {
		state := killAgent(t, nil)
		wantAt(t, v, "clsact", "egress 50000 other", "egress 4096 tl_dscp:killed")
		led := openLedger(t, LedgerPath(state, "killed"))
		l, err := Load(t.Context(), clsactOptions(t, led, "killed", "tl0"))
		if err != nil {
			t.Fatal(err)
		}
		wantAt(t, v, "clsact", "egress 50000 other", "egress 4096 tl_dscp:killed")
		if kinds := kindsIn(t, led); !slices.Equal(kinds, []ledger.Kind{ledger.ClsactFilter}) {
			t.Errorf("the ledger holds %v", kinds)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wantAt(t, v, "clsact", "egress 50000 other")
	}
}

func newQdisc(t *testing.T, l netlink.Link) netlink.Link {
	t.Helper()
	if err := netlink.QdiscAdd(clsactQdisc(l)); err != nil {
		t.Fatal(err)
	}
	return l
}

// Whatever has happened to the interface since, cleanup takes away ours and nothing else.
func TestCleanupOfClsactAfterChanges(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if isAgent(t, "tl0") {
		return
	}
	needClsact(t)
	del := func(t *testing.T, v netlink.Link) {
		t.Helper()
		if err := netlink.LinkDel(v); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		change  func(*testing.T, netlink.Link) netlink.Link
		outcome ledger.Outcome
		detail  string
		left    []string
	}{
		{"interface gone", func(t *testing.T, v netlink.Link) netlink.Link { del(t, v); return newVeth(t, "tl0", 0) },
			ledger.Already, "the interface is gone", nil},
		{"its number given to another", func(t *testing.T, v netlink.Link) netlink.Link {
			del(t, v)
			return newQdisc(t, newVeth(t, "tl5", v.Attrs().Index))
		}, ledger.Left, "tc qdisc del dev tl5 clsact", []string{"clsact"}},
		{"a look-alike", func(t *testing.T, v netlink.Link) netlink.Link { // all the same but the program
			if err := netlink.QdiscDel(clsactQdisc(v)); err != nil {
				t.Fatal(err)
			}
			if err := addOther(t, newQdisc(t, v), otherFilter{priority: 4096, name: "tl_dscp+clsact:killed"}); err != nil {
				t.Fatal(err)
			}
			return v
		}, ledger.Left, "someone else's", []string{"clsact", "egress 4096 tl_dscp+clsact:killed"}},
		{"ingress in its place", func(t *testing.T, v netlink.Link) netlink.Link {
			if err := netlink.QdiscDel(clsactQdisc(v)); err != nil {
				t.Fatal(err)
			}
			if err := netlink.QdiscAdd(ingressQdisc(v)); err != nil {
				t.Fatal(err)
			}
			return v
		}, ledger.Already, "", []string{"ingress"}},
		{"others' filter in our qdisc", func(t *testing.T, v netlink.Link) netlink.Link {
			if err := addOther(t, v, otherFilter{priority: 7}); err != nil {
				t.Fatal(err)
			}
			return v
		}, ledger.Restored, "others have put something into it", []string{"clsact", "egress 7 other"}},
	} {
		v := newVeth(t, "tl0", 0)
		state := killAgent(t, nil)
		v = c.change(t, v)
		got, err := outcomesOf(t, state)
		if err != nil || len(got) != 1 || got[0].Outcome != c.outcome || !strings.Contains(got[0].Detail, c.detail) {
			t.Errorf("%s: %+v %v; want %s, %q", c.name, got, err, c.outcome, c.detail)
		}
		wantAt(t, v, c.left...)
		del(t, v)
	}
}

// What is in another network namespace is said to be, with the way there, until that namespace has gone.
func TestCleanupOfClsactElsewhere(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if isAgent(t, "tl0") {
		return
	}
	needClsact(t)
	newVeth(t, "tl0", 0)
	state := killAgent(t, nil)

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := vnetns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	other, err := vnetns.New()
	if err != nil {
		t.Fatal(err)
	}
	got, err := outcomesOf(t, state)
	if err == nil || len(got) != 1 || got[0].Outcome != ledger.Failed || !strings.Contains(got[0].Detail, "nsenter --net=/proc/") {
		t.Errorf("from another namespace: %+v %v", got, err)
	}
	if err := vnetns.Set(home); err != nil {
		t.Fatal(err)
	}
	other.Close()
	if got, err = outcomesOf(t, state); err != nil || len(got) != 1 || got[0].Outcome != ledger.Restored {
		t.Errorf("from its own: %+v %v", got, err)
	}
}

// An entry of a namespace or boot that has ended is done with; but of a namespace that can be known only by who sees all
// processes.
func TestCleanupOfClsactThatHasEnded(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	newVeth(t, "tl0", 0)
	l, _ := loadClsact(t, "one", "tl0")
	entries, err := l.o.Ledger.Entries()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Kind == ledger.ClsactFilter })
	undo := func(change func(*clsact.Filter)) ledger.Result {
		e, f := entries[i], *entries[i].Filter
		change(&f)
		e.Filter = &f
		id, err := l.o.Ledger.Record(e)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := l.o.Ledger.UndoOnly(l.log, id)
		return got[0]
	}
	if r := undo(func(f *clsact.Filter) { f.BootID = "another" }); r.Outcome != ledger.Already || !strings.Contains(r.Detail, "booted") {
		t.Errorf("another boot: %+v", r)
	}
	ended := netns.ID{Cookie: 1 << 60, Inode: 1}
	outcome, detail := ledger.Already, "namespace is gone"
	if _, err := netns.Find(ended); !errors.Is(err, netns.ErrGone) {
		outcome, detail = ledger.Failed, "if that still exists"
		t.Logf("the end of a namespace is not seen from here: %v", err)
	}
	if r := undo(func(f *clsact.Filter) { f.Netns = ended }); r.Outcome != outcome || !strings.Contains(r.Detail, detail) {
		t.Errorf("another namespace: %+v", r)
	}
	wantAt(t, linkNamed(t, "tl0"), "clsact", "egress 4096 tl_dscp+clsact:one")
}

// Killed between writing down and making, or between qdisc and filter.
func TestCleanupOfClsactHalfMade(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	needClsact(t)
	v := newVeth(t, "tl0", 0)
	l, closeIt := loadClsact(t, "one", "tl0")
	place := l.marks.attached[v.Attrs().Index].(*clsactAttachment).filter.Place
	led := l.o.Ledger
	closeIt()
	for _, c := range []struct {
		name    string
		prepare func()
		outcome ledger.Outcome
		left    []string
	}{
		{"nothing made", func() {}, ledger.Already, nil},
		{"the qdisc made", func() { newQdisc(t, v) }, ledger.Restored, nil},
		{"and used by others", func() {
			if err := addOther(t, newQdisc(t, v), otherFilter{priority: 2}); err != nil {
				t.Fatal(err)
			}
		}, ledger.Left, []string{"clsact", "egress 2 other"}},
	} {
		c.prepare()
		id, err := led.Record(ledger.Entry{Kind: ledger.ClsactQdisc, Target: "tl0", Place: &place})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := led.UndoOnly(l.log, id); err != nil || len(got) != 1 || got[0].Outcome != c.outcome {
			t.Errorf("%s: %+v %v; want %s", c.name, got, err, c.outcome)
		}
		wantAt(t, v, c.left...)
	}
}
