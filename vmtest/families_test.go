// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// Where there is no IPv4 at all, not even on loopback, agents find each other and steer over IPv6.
func TestIPv6Only(t *testing.T) {
	testkit.NeedIPv6(t)
	w := servedWorld(t, setup{lab: lab.Options{NoIPv4: true}})
	w.a.need(t, "steering-ipv6")
	addr := w.lab.B.Addr6
	w.wantExactTransfers(t, addr)
	// Real clients: curl with ranges, and a flow in the tables of the agent.
	root := publicDir(t)
	want := writeStream(t, filepath.Join(root, "file"), 7, testkit.Size(3_000_000, 1_000_000))
	serveFiles(t, w, root)
	got := filepath.Join(t.TempDir(), "got")
	output(t, w.lab.A, "curl", "-sSf", "--noproxy", "*", "-o", got, "http://["+addr.String()+"]/file")
	if sum := fileSum(t, got); sum != want {
		t.Errorf("curl got sha256 %s, want %s", sum, want)
	}
	w.wantFlowShown(t, addr)
}

// A host whose IPv6 is switched off by sysctl steers IPv4 as ever, also that of IPv6 sockets.
func TestNoIPv6(t *testing.T) {
	s := setup{lab: lab.Options{NoIPv6: true}}
	w := newSites(t, s)
	if testkit.IPv6() == nil { // else the kernel has none, which is more of the same
		for _, site := range []*lab.Site{w.lab.A, w.lab.B} {
			switchOffIPv6(t, site)
		}
	}
	w.a.start()
	w.b.start()
	w.waitPeers()
	serve(t, w.lab.B, w.lab.B.Addr4)
	w.a.need(t, "steering-ipv4")
	w.wantExactTransfers(t, w.lab.B.Addr4)
	w.wantFlowShown(t, w.lab.B.Addr4)
	for _, f := range w.a.status().Features {
		if f.Name == "steering-ipv6" && !f.On && (f.Detail == "" || f.Remedy == "") {
			t.Errorf("%+v: off without a reason or a remedy", f)
		}
	}
}

// The kernel has no IPv6 sockets: there is nothing to steer, and the agent says so.
func TestNoIPv6InTheKernel(t *testing.T) {
	testkit.NeedRoot(t)
	if testkit.IPv6() == nil {
		testkit.NeedFeature(t, "no-ipv6", errors.New("it has IPv6"))
	}
	w := servedWorld(t, setup{})
	f := w.a.feature(t, "steering-ipv6")
	if f.On || !strings.Contains(f.Detail, "no IPv6") || !strings.Contains(f.Remedy, "ipv6.disable=1") {
		t.Errorf("%+v", f)
	}
	if f := w.a.feature(t, "steering-ipv4"); !f.On {
		t.Errorf("%+v", f)
	}
	w.wantExactTransfers(t, w.lab.B.Addr4)
}

func switchOffIPv6(t *testing.T, site *lab.Site) {
	t.Helper()
	err := site.Do(func() error {
		for _, which := range []string{"all", "default", "lo"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantExactTransfers exchanges small and large, both ways, all through the engine.
func (w *world) wantExactTransfers(t *testing.T, addr netip.Addr) {
	t.Helper()
	before := w.a.peer().FlowsOpened
	bytes := arg("bytes", testkit.Size(5_000_000, 1_000_000))
	client(t, w.lab.A, "echo", arg("addr", at(addr, portEcho)), "-count=20").wantAll(t, 20)
	client(t, w.lab.A, "fetch", arg("addr", at(addr, portSource)), bytes).wantAll(t, 1)
	client(t, w.lab.A, "push", arg("addr", at(addr, portSink)), bytes).wantAll(t, 1)
	if n := w.a.peer().FlowsOpened - before; n != 22 {
		t.Errorf("%d flows went through the engine, want 22", n)
	}
}

// wantFlowShown says that `trunkline flows` shows a connection with where it wanted to go.
func (w *world) wantFlowShown(t *testing.T, addr netip.Addr) {
	t.Helper()
	hold := startClient(t, w.lab.A.Namespace, "drink", arg("addr", at(addr, portHold)))
	var flows struct {
		Flows []struct {
			Kind   string `json:"kind"`
			Remote string `json:"remote"`
		} `json:"flows"`
	}
	waitFor(t, 10*time.Second, "the flow to "+addr.String()+" to be shown as steered", func() bool {
		w.a.ask(&flows, "flows")
		for _, f := range flows.Flows {
			if f.Kind == "steered" && f.Remote == at(addr, portHold) {
				return true
			}
		}
		return false
	})
	if err := hold.proc.Kill(); err != nil {
		t.Error(err)
	}
}
