// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

// newVeth makes a pair, both ends up, and returns the first. index 0: the kernel chooses.
func newVeth(t *testing.T, name string, index int) netlink.Link {
	t.Helper()
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index}, PeerName: name + "p"}
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{name + "p", name} {
		if err := netlink.LinkSetUp(linkNamed(t, n)); err != nil {
			t.Fatal(err)
		}
	}
	return linkNamed(t, name)
}

// marksLoad asks the kernel whether it takes the programs that decide about marks and write them.
func marksLoad() error {
	for _, read := range []func() (*ebpf.CollectionSpec, error){bpf.Mark, bpf.DSCP, bpf.Gate} {
		spec, err := read()
		if err != nil {
			return err
		}
		coll, err := ebpf.NewCollection(spec)
		if err != nil {
			return err
		}
		coll.Close()
	}
	return nil
}

func linkNamed(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// needClsact skips the test on kernels without clsact or its filters, and on those that refuse what marks are made of.
func needClsact(t *testing.T) {
	t.Helper()
	testkit.NeedFeature(t, "marks", marksLoad())
	l := newVeth(t, "probe", 0)
	defer netlink.LinkDel(l)
	err := netlink.QdiscAdd(clsactQdisc(l))
	if err == nil {
		err = addOther(t, l, otherFilter{})
	}
	if errors.Is(err, unix.ENOENT) {
		testkit.NeedFeature(t, "clsact", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func clsactQdisc(l netlink.Link) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

func ingressQdisc(l netlink.Link) netlink.Qdisc {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
}

// otherFilter is a filter of someone else. Its program lets everything pass and ends the search if ends says so.
type otherFilter struct {
	ingress  bool
	priority uint16 // 0: the kernel chooses
	ends     bool
	name     string
}

func addOther(t *testing.T, l netlink.Link, o otherFilter) error {
	t.Helper()
	verdict := int32(-1) // TC_ACT_UNSPEC
	if o.ends {
		verdict = 0 // TC_ACT_OK
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "other", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	if o.name == "" {
		o.name = "other"
	}
	parent := uint32(netlink.HANDLE_MIN_EGRESS)
	if o.ingress {
		parent = netlink.HANDLE_MIN_INGRESS
	}
	return netlink.FilterAdd(&netlink.BpfFilter{Fd: prog.FD(), Name: o.name, DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: l.Attrs().Index, Parent: parent, Priority: o.priority, Protocol: unix.ETH_P_ALL}})
}

// atInterface lists the clsact or ingress qdisc and the filters at both sides, one a line: "egress 4095 tl_dscp:one".
func atInterface(t *testing.T, l netlink.Link) []string {
	t.Helper()
	qdiscs, err := netlink.QdiscList(l)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			out = append(out, q.Type())
		}
	}
	for side, parent := range map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS} {
		if slices.Contains(out, "ingress") && side == "egress" {
			continue // an ingress qdisc would show its ingress again
		}
		filters, err := netlink.FilterList(l, parent)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range filters {
			name := f.Type()
			if b, ok := f.(*netlink.BpfFilter); ok {
				if name = b.Name; b.Id == 0 {
					continue // the line of the preference
				}
			}
			out = append(out, fmt.Sprintf("%s %d %s", side, f.Attrs().Priority, name))
		}
	}
	slices.Sort(out)
	return out
}

func wantAt(t *testing.T, l netlink.Link, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := atInterface(t, l); !slices.Equal(got, want) {
		t.Errorf("at %s: %q, want %q", l.Attrs().Name, got, want)
	}
}

func openLedger(t *testing.T, path string) *ledger.Ledger {
	t.Helper()
	led, err := ledger.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { led.Close() })
	return led
}

// clsactOptions are those of an instance without rules that writes marks at named interfaces.
func clsactOptions(t *testing.T, led *ledger.Ledger, instance string, interfaces ...string) Options {
	return Options{Instance: instance, Cgroup: testenv.Cgroup(), Interfaces: interfaces, Ledger: led, BPFFS: t.TempDir(), forceClsact: true,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// loadClsact loads with a ledger of its own. closeIt closes, and looks that nothing is left in the ledger.
func loadClsact(t *testing.T, instance string, interfaces ...string) (l *Loader, closeIt func()) {
	t.Helper()
	led := openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
	l, err := Load(t.Context(), clsactOptions(t, led, instance, interfaces...))
	if err != nil {
		t.Fatal(err)
	}
	closeIt = func() {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := led.Entries(); err != nil || len(left) > 0 {
			t.Errorf("left in the ledger: %+v %v", left, err)
		}
	}
	t.Cleanup(func() { l.Close() })
	return l, closeIt
}

// kindsIn returns what a ledger holds, without what pins need.
func kindsIn(t *testing.T, led *ledger.Ledger) []ledger.Kind {
	t.Helper()
	entries, err := led.Entries()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []ledger.Kind
	for _, e := range entries {
		if e.Kind == ledger.ClsactFilter || e.Kind == ledger.ClsactQdisc {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// killedState is where an agent that is to be killed keeps its ledger.
const killedState = "TL_TEST_KILLED_STATE"

// isAgent is true in the process of an agent that is to be killed, which loads and waits for it.
func isAgent(t *testing.T, interfaces ...string) bool {
	t.Helper()
	if os.Getenv(killedEnv) == "" {
		return false
	}
	led := openLedger(t, LedgerPath(os.Getenv(killedState), "killed"))
	l, err := Load(t.Context(), clsactOptions(t, led, "killed", interfaces...))
	if err != nil {
		t.Fatal(err)
	}
	if f := feature(t, l, "marks"); !f.On || !strings.Contains(f.Detail, "(clsact)") {
		t.Fatalf("%+v", f)
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

// killAgent starts an agent and kills it, and returns the path of its ledger. before is called while it runs.
func killAgent(t *testing.T, before func()) (stateDir string) {
	t.Helper()
	stateDir = t.TempDir()
	t.Setenv(killedState, stateDir)
	agent := startAgent(t)
	if before != nil {
		before()
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // "signal: killed"
	return stateDir
}

// outcomesOf cleans up after an agent that was killed, as `trunkline cleanup` does.
func outcomesOf(t *testing.T, stateDir string) ([]ledger.Result, error) {
	t.Helper()
	all, err := Cleanup(t.Context(), stateDir, "killed", slog.New(slog.NewTextHandler(t.Output(), nil)))
	return slices.DeleteFunc(all, func(r ledger.Result) bool {
		return r.Entry.Kind != ledger.ClsactFilter && r.Entry.Kind != ledger.ClsactQdisc
	}), err
}
