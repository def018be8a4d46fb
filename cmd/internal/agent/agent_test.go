// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/ledger"
)

const peerKey = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// host is a place for agents: a cgroup that holds no process, so that nothing on the machine is touched.
type host struct {
	t      *testing.T
	dir    string
	cgroup string
}

func newHost(t *testing.T) *host {
	t.Helper()
	testkit.NeedRoot(t)
	if errs := loader.Preflight("/"); len(errs) > 0 {
		t.Fatal(errs[0])
	}
	h := &host{t: t, dir: t.TempDir(), cgroup: fmt.Sprintf("/tl-test-agent-%d", os.Getpid())}
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		path := root + h.cgroup
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
		return h
	}
	t.Fatal("no cgroup2 mount in a usual place")
	return nil
}

func (h *host) file() string { return filepath.Join(h.dir, "t.yaml") }

func (h *host) write(rest string) *config.Config {
	h.t.Helper()
	text := fmt.Sprintf("instance: agenttest\ncgroup: %s\nstate_dir: %s/state\nrun_dir: %s/run\n%s", h.cgroup, h.dir, h.dir, rest)
	if err := os.WriteFile(h.file(), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	c, err := config.Load(h.file())
	if err != nil {
		return nil
	}
	return c
}

// run runs an agent in this process and waits until it answers. stop ends it.
func (h *host) run(c *config.Config) (client *control.Client, stop func() error) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, Options{Version: "test", Log: slog.New(slog.DiscardHandler)}) }()
	var result error
	ended := false
	stop = func() error {
		cancel()
		if !ended {
			result, ended = <-done, true
		}
		return result
	}
	h.t.Cleanup(func() { _ = stop() })
	client = control.NewClient(c.Socket(), c.Instance)
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		if _, err := client.Status(ctx); err == nil {
			return client, stop
		}
		select {
		case err := <-done:
			h.t.Fatalf("the agent ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			h.t.Fatal("the agent does not answer")
		}
	}
}

// Tuning alone needs no peer, no key in any configuration, and no listener for peers.
func TestLife(t *testing.T) {
	h := newHost(t)
	client, stop := h.run(h.write("rules: [{name: all, remote: 0.0.0.0/0, congestion: cubic}]\n"))
	ctx := context.Background()
	s, err := client.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.Instance != "agenttest" || s.Rules != 1 || s.PID != os.Getpid() || s.Health != control.Healthy || len(s.Features) == 0 {
		t.Errorf("status: %+v", s)
	}
	if _, err := client.Flows(ctx); err != nil {
		t.Error(err)
	}
	h.reload(client)
	if err := client.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if s, _ := client.Status(ctx); s.Health != control.Draining {
		t.Errorf("after drain: %s", s.Health)
	}
	if _, err := client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	if s, _ := client.Status(ctx); s.Health == control.Draining {
		t.Error("still draining after a reload")
	}
	if err := stop(); err != nil {
		t.Errorf("end: %v", err)
	}
	h.wantNothingLeft()
}

// reload tries a file with a mistake, which changes nothing, and then a good one.
func (h *host) reload(client *control.Client) {
	h.t.Helper()
	ctx := context.Background()
	remote := netip.MustParseAddrPort("203.0.113.9:80")
	h.write("rules: [{remote: 203.0.113.0/24, congestoin: bbr}]\n")
	if _, err := client.Reload(ctx); err == nil || !strings.Contains(err.Error(), `t.yaml:5:34: unknown key "congestoin"`) {
		h.t.Errorf("reload of a bad file: %v", err)
	}
	if e, err := client.Explain(ctx, remote); err != nil || e.Rule != "all" {
		h.t.Errorf("after a bad reload: %+v, %v", e, err)
	}
	h.write("dscp: ef\npeers: [{name: far, address: \"127.0.0.1:9\", key: \"" + peerKey + "\"}]\n" +
		"rules:\n  - {name: web, remote: 203.0.113.0/24, dedup: {peer: far}}\n  - {name: all, remote: 0.0.0.0/0}\n")
	r, err := client.Reload(ctx)
	if err != nil || r.Rules != 2 || r.Peers != 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "dscp") {
		h.t.Errorf("reload: %+v, %v", r, err)
	}
	if e, err := client.Explain(ctx, remote); err != nil || e.Rule != "web" || e.RuleID != 2 {
		h.t.Errorf("after a reload: %+v, %v; want rule web with the next free number", e, err)
	}
	peers, err := client.Peers(ctx)
	if err != nil || len(peers) != 1 || peers[0].Name != "far" || peers[0].Up {
		h.t.Errorf("peers: %+v, %v", peers, err)
	}
}

func (h *host) wantNothingLeft() {
	h.t.Helper()
	if _, err := os.Lstat(filepath.Join(h.dir, "run", "control.sock")); err == nil {
		h.t.Error("the control socket is left")
	}
	l, err := ledger.Open(filepath.Join(h.dir, "state", "ledger.db"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	if entries, err := l.Entries(); err != nil || len(entries) > 0 {
		h.t.Errorf("the ledger holds %+v, %v", entries, err)
	}
}

func TestTwoAgentsOfOneInstance(t *testing.T) {
	h := newHost(t)
	c := h.write("rules: [{remote: 203.0.113.0/24}]\n")
	client, _ := h.run(c)
	err := Run(context.Background(), c, Options{Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "another agent of instance agenttest runs") {
		t.Errorf("error %v", err)
	}
	if _, err := client.Status(context.Background()); err != nil {
		t.Errorf("the first agent suffered: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	h := newHost(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := h.write(fmt.Sprintf("listen: %q\npeers: [{name: far, key: %q}]\n", taken.Addr(), peerKey))
	err = Run(context.Background(), c, Options{Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "the port is taken") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line", err)
	}
	h.wantNothingLeft()
}

// What a killed agent left in the ledger is undone by the next one.
func TestPredecessorsLeftoversAreUndone(t *testing.T) {
	h := newHost(t)
	c := h.write("rules: [{remote: 203.0.113.0/24}]\n")
	left := filepath.Join(h.dir, "left-behind")
	l, err := ledger.Open(c.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Record(ledger.Entry{Kind: ledger.File, Target: left})
	if err = errors.Join(err, os.WriteFile(left, nil, 0o600), l.Close()); err != nil {
		t.Fatal(err)
	}
	_, stop := h.run(c)
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A reload ends a drain, but not the one before the end: what was steered then would be reset.
func TestNoReloadOnceItEnds(t *testing.T) {
	h := newHost(t)
	c := h.write("rules: [{remote: 203.0.113.0/24}]\n")
	a := &agent{o: Options{Version: "test"}, log: slog.New(slog.DiscardHandler), config: c}
	if err := a.start(context.Background()); err != nil {
		t.Fatal(err, a.close())
	}
	defer a.close()
	if _, err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := a.finish(context.Background(), signals{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Reload(); err == nil || !strings.Contains(err.Error(), "is ending") {
		t.Errorf("reload: %v", err)
	}
}

func TestNumbersStayWithNames(t *testing.T) {
	var n numbering
	if got := []uint32{n.of("a"), n.of("b"), n.of("a"), n.of("c"), n.of("b")}; !slices.Equal(got, []uint32{1, 2, 1, 3, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		in   []config.PortRange
		want []uint16
	}{
		{[]config.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8002}}, []uint16{80, 8000, 8001, 8002}},
		{[]config.PortRange{{First: 22, Last: 22}, {First: 1, Last: 65535}}, nil},
		{[]config.PortRange{{First: 65534, Last: 65535}}, []uint16{65534, 65535}},
	} {
		if got := ports(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.in, got, c.want)
		}
	}
}
