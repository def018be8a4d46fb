// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

func hello(net.Conn) string { return "hello" }

// disconnect takes a socket back to where it was before connect().
func disconnect(t *testing.T, fd int) {
	t.Helper()
	unspec := syscall.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := syscall.Syscall(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	if errno != 0 {
		t.Fatalf("disconnecting: %v", errno)
	}
}

// wantDirect says that a connection reached the far server itself, and that the reason was counted once.
func (e *steerEnv) wantDirect(r reason.Code, dial func() *client) {
	e.t.Helper()
	before := e.counts(r)
	if got := dial().line(e.t); !strings.HasPrefix(got, "direct ") {
		e.t.Errorf("%s: reached %q, want the far server", r, got)
	}
	if n := e.counts(r) - before; n != 1 {
		e.t.Errorf("%s: counted %d times, want once", r, n)
	}
}

func (e *steerEnv) dial4() *client { return dial(e.t, unix.AF_INET, testenv.Far4, testPort) }

// wantSteered says that nothing stands in the way any more.
func (e *steerEnv) wantSteered() {
	e.t.Helper()
	if got := e.dial4().line(e.t); !strings.HasPrefix(got, "engine 10.2.0.1:8080 ") {
		e.t.Errorf("reached %q, want the engine", got)
	}
}

func TestUntouchedForWhatTheSocketIs(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	e.wantDirect(reason.BoundDevice, func() *client {
		return dial(t, unix.AF_INET, testenv.Far4, testPort, func(fd int) error { return unix.BindToDevice(fd, "near") })
	})
	e.wantDirect(reason.OwnSocket, func() *client {
		return dial(t, unix.AF_INET, testenv.Far4, testPort, func(fd int) error { return e.l.Own(cookieOf(t, fd), 1, false) })
	})
	t.Run("other namespace", func(t *testing.T) {
		e.world.InFar(func() {
			e.wantDirect(reason.OtherNetns, func() *client { return dial(t, unix.AF_INET, testenv.RouterLink4, testPort) })
		})
	})
	t.Run("mptcp", func(t *testing.T) {
		testkit.NeedMPTCP(t)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
		if err != nil {
			t.Fatal(err)
		}
		e.wantDirect(reason.MPTCP, func() *client { return connect(t, fd, unix.AF_INET, testenv.Far4, testPort) })
	})
	t.Run("bound to the loopback", func(t *testing.T) {
		cl := dial(t, unix.AF_INET, testenv.Far4, testPort, bind(unix.AF_INET, "127.0.0.1"),
			func(fd int) error { return unix.SetNonblock(fd, true) })
		if cl.err == nil || e.entries("tl_orig") != 0 {
			t.Errorf("connect: %v, %d originals; want the error of a direct connection", cl.err, e.entries("tl_orig"))
		}
	})
	e.wantSteered()
}

func TestUDPIsUntouched(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	cl := connect(t, fd, unix.AF_INET, testenv.Far4, testPort)
	if got := cl.peer(t); cl.err != nil || got != "10.2.0.1:8080" {
		t.Errorf("connect: %v, getpeername: %s", cl.err, got)
	}
	if got, _ := cl.local(t); got != testenv.NearLink4 {
		t.Errorf("getsockname: %s: it is not routed as it should be", got)
	}
	if counts, err := e.l.ReasonCounts(); err != nil || len(counts) != 0 {
		t.Errorf("reasons were counted: %v, %v", counts, err)
	}
}

func TestUntouchedForWhereItGoes(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	e.wantDirect(reason.OnLink, func() *client { return dial(t, unix.AF_INET, testenv.RouterLink4, testPort) })
	for _, a := range []string{"127.0.0.1", "127.9.9.9", testenv.NearLink4, "0.0.0.0"} {
		before := e.counts(reason.Local)
		if cl := dial(t, unix.AF_INET, a, testPort); cl.err != unix.ECONNREFUSED {
			t.Errorf("%s: connect: %v, want ECONNREFUSED", a, cl.err)
		}
		if n := e.counts(reason.Local) - before; n != 1 {
			t.Errorf("%s: counted %d times", a, n)
		}
	}
	for _, a := range []string{"::1", "::", testenv.NearLink6, "::ffff:127.0.0.1", "::ffff:0.0.0.0"} {
		if e.ln6 == nil {
			break
		}
		before := e.counts(reason.Local)
		if cl := dial(t, unix.AF_INET6, a, testPort); cl.err != unix.ECONNREFUSED {
			t.Errorf("%s: connect: %v, want ECONNREFUSED", a, cl.err)
		}
		if n := e.counts(reason.Local) - before; n != 1 {
			t.Errorf("%s: counted %d times", a, n)
		}
	}

	// A peer's listener, for good; a failed dial, for a while.
	peer := netip.MustParseAddrPort("10.2.0.1:8080")
	rules := e.l.table.Rules()
	if err := e.l.Apply(rules, []netip.AddrPort{peer}); err != nil {
		t.Fatal(err)
	}
	e.l.Bypass(peer, reason.DialFailed, time.Nanosecond) // does not shorten it
	e.wantDirect(reason.PeerAddress, e.dial4)
	if err := e.l.Apply(rules, nil); err != nil {
		t.Fatal(err)
	}
	e.wantSteered()
	while := testkit.Wait(300 * time.Millisecond)
	e.l.Bypass(peer, reason.DialFailed, while)
	e.wantDirect(reason.DialFailed, e.dial4)
	time.Sleep(while)
	e.wantSteered()
}

func TestUntouchedForWhoAsks(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	inner, dir := testenv.SubCgroup(t, "backup")
	e := newSteerEnv(t, func(r *policy.Rule) {
		r.ExcludeUsers, r.ExcludeCgroups = []string{"54321"}, []string{inner}
	})
	testenv.AsUser(54321, func() { e.wantDirect(reason.Excluded, e.dial4) })
	testenv.AsUser(54322, e.wantSteered)

	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command("bash", "-c", "exec 3<>/dev/tcp/"+testenv.Far4+"/8080 && head -n1 <&3")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "direct ") {
		t.Errorf("from the excluded cgroup: %q, %v", out, err)
	}
	if n := e.counts(reason.Excluded); n != 2 {
		t.Errorf("excluded: counted %d times, want 2", n)
	}
}

// Whatever is wrong with the engine, connections go direct, and are steered again when it is mended.
func TestUntouchedForTheEngine(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	e.l.SetPeer(testPeer, false)
	e.wantDirect(reason.PeerDown, e.dial4)
	e.l.SetPeer(testPeer, true)

	if err := e.l.Drain(); err != nil {
		t.Fatal(err)
	}
	e.wantDirect(reason.Draining, e.dial4)

	if err := e.l.SetEngine(Engine{Port6: portOf(e.ln6)}); err != nil {
		t.Fatal(err)
	}
	e.wantDirect(reason.FamilyOff, e.dial4)
	if e.ln6 != nil {
		e.wantDirect(reason.FamilyOff, func() *client { return dial(t, unix.AF_INET6, testenv.Far4, testPort) })
	}
	if err := e.l.SetEngine(Engine{Port4: portOf(e.ln4), Port6: portOf(e.ln6)}); err != nil {
		t.Fatal(err)
	}
	e.wantSteered()

	if err := e.l.writeAgent(func(a *bpf.Agent) { a.HeartbeatMaxAgeNs = uint64(2 * heartbeatEvery) }); err != nil {
		t.Fatal(err)
	}
	e.alive.Store(false)
	time.Sleep(3 * heartbeatEvery)
	e.wantDirect(reason.EngineNotAlive, e.dial4)
	e.alive.Store(true)
	time.Sleep(2 * heartbeatEvery)
	e.wantSteered()

	e.ln4.Close()
	e.wantDirect(reason.EngineNotAlive, e.dial4)
	if e.ln6 != nil {
		e.ln6.Close()
		e.wantDirect(reason.EngineNotAlive, func() *client { return dial(t, unix.AF_INET6, testenv.Far6, testPort) })
	}
}

// A connection to the engine's port is no listener, and another's listener is not the engine.
func TestOnlyTheEngineListens(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	cl := e.dial4()
	cl.line(t)
	e.ln4.Close()
	e.wantDirect(reason.EngineNotAlive, e.dial4)
	e.serve(listen(t, "0.0.0.0", int(portOf(e.ln4))), hello)
	e.wantDirect(reason.EngineNotAlive, e.dial4)
	if e.ln6 == nil {
		return
	}
	e.ln6.Close()
	e.serve(listen(t, "::", int(portOf(e.ln6))), hello)
	e.wantDirect(reason.EngineNotAlive, func() *client { return dial(t, unix.AF_INET6, testenv.Far6, testPort) })
}

func TestFullTable(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	m := e.l.maps["tl_orig"]
	fill := func(age time.Duration) {
		t.Helper()
		for i := range uint64(m.MaxEntries()) {
			o := bpf.Orig{TimeNs: monotonic() - uint64(age)}
			if err := m.Update(1<<60+i, o, ebpf.UpdateAny); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(0)
	e.wantDirect(reason.TableFull, e.dial4)
	fill(originalMaxAge + time.Second) // of the same keys
	eventually(t, "the sweeper makes room", func() bool { return e.entries("tl_orig") == 0 })
	e.wantSteered()
}

func TestCloseLeavesNothing(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	cl := e.dial4()
	cl.line(t)
	var ids []ebpf.ProgramID
	for _, at := range []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupSockOps} {
		ids = append(ids, attached(t, e.l.cgroup, at)...)
	}
	want := 3
	if e.ln6 == nil {
		want = 2
	}
	if len(ids) != want {
		t.Fatalf("%d programs are attached, want %d", len(ids), want)
	}
	if err := e.l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []ebpf.AttachType{
		ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupSockOps, ebpf.AttachCGroupInetEgress,
		ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername,
		ebpf.AttachCgroupInet4GetSockname, ebpf.AttachCgroupInet6GetSockname,
	} {
		if left := attached(t, e.l.cgroup, at); len(left) > 0 {
			t.Errorf("%s: still attached: %v", at, left)
		}
	}
	for _, id := range ids {
		eventually(t, "the program is gone", func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return err != nil
		})
	}
	if got := dial(t, unix.AF_INET, testenv.Far4, testPort).line(t); !strings.HasPrefix(got, "direct ") {
		t.Errorf("after Close a connection reached %q", got)
	}
	if err := e.l.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	if _, err := Load(context.Background(), Options{Cgroup: "/no/such/group"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing cgroup: %v", err)
	}
	rule := policy.Rule{ID: 1, Remote: netip.MustParsePrefix("10.0.0.0/8")}
	other := policy.Rule{ID: 2, Remote: netip.MustParsePrefix("10.0.0.0/8")}
	if _, err := Load(context.Background(), Options{Cgroup: testenv.Cgroup(), Rules: []policy.Rule{rule, other}}); err == nil {
		t.Error("equal rules were taken")
	}
	testenv.AsUser(54321, func() {
		if _, err := Load(context.Background(), Options{Cgroup: testenv.Cgroup()}); err != ErrNotPermitted {
			t.Errorf("without privileges: %v, want %v", err, ErrNotPermitted)
		}
	})
}

// attached returns the programs attached to a cgroup.
func attached(t *testing.T, cgroup string, at ebpf.AttachType) []ebpf.ProgramID {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: at})
	if err != nil {
		t.Fatal(err)
	}
	var ids []ebpf.ProgramID
	for _, p := range r.Programs {
		ids = append(ids, p.ID)
	}
	return ids
}
