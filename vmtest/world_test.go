// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// world is two sites with an agent each. The client's side is A, the servers' B.
type world struct {
	t    *testing.T
	lab  *lab.Lab
	a, b *agent
}

// setup says how a world differs from the usual one.
type setup struct {
	rules func(site, peer *lab.Site) string // YAML of the rules of the agent at a site; nil: the test services of B are steered
	allow func(site *lab.Site) []string     // what the agent at a site allows its peer to reach; nil: everything of the site
	lab   lab.Options
}

// agent is a trunkline agent at a site.
type agent struct {
	t      *testing.T
	site   *lab.Site
	name   string
	dir    string
	config string
	key    string
	proc   *lab.Process
	log    *syncBuffer
	exited chan struct{}
	killed bool // since its start; what it left is cleaned up at the end
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// binary is the built trunkline; `make test` builds it first.
func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../bin/trunkline")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: build it with `make build`", err)
	}
	return path
}

// trunkline runs the command line at no site and returns what it printed.
func trunkline(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(binary(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("trunkline %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	w := newSites(t, s)
	w.a.start()
	w.b.start()
	w.waitPeers()
	return w
}

// newSites lays the sites and configures the agents without starting them.
func newSites(t *testing.T, s setup) *world {
	t.Helper()
	testkit.NeedRoot(t)
	if testkit.IPv6() != nil {
		s.lab.NoIPv6 = true // what needs it asks for it
	}
	if s.lab.Rate == 0 {
		s.lab.Rate = 400e6
	}
	if s.lab.RTT == 0 {
		s.lab.RTT = 10 * time.Millisecond
	}
	l, err := lab.New(s.lab)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	w := &world{t: t, lab: l}
	w.a, w.b = newAgent(t, l.A, "a"), newAgent(t, l.B, "b")
	w.a.configure(w.b, s)
	w.b.configure(w.a, s)
	return w
}

func newAgent(t *testing.T, site *lab.Site, name string) *agent {
	t.Helper()
	g := &agent{t: t, site: site, name: name, dir: t.TempDir()}
	var out struct {
		Fingerprint string `json:"fingerprint"`
	}
	if err := json.Unmarshal([]byte(trunkline(t, "keygen", "--json", "--key", g.path("key"))), &out); err != nil {
		t.Fatal(err)
	}
	g.key = out.Fingerprint
	return g
}

func (g *agent) path(name string) string { return filepath.Join(g.dir, name) }

func defaultRules(_, peer *lab.Site) string {
	ports := fmt.Sprintf("[80, 5201, 5432, 873, 9418, %d-%d]", portEcho, portNobody)
	rules := ""
	for _, prefix := range []netip.Prefix{peer.Net4, peer.Net6} {
		if prefix.IsValid() {
			rules += fmt.Sprintf("  - {remote: %q, ports: %s, congestion: cubic, dedup: {peer: peer}}\n", prefix, ports)
		}
	}
	return rules
}

// listener is where the agent at a site listens for peers: over IPv4 where the site has it.
func listener(site *lab.Site) string { return at(site.Addrs()[0], 4820) }

func (g *agent) configure(peer *agent, s setup) {
	rules := defaultRules
	if s.rules != nil {
		rules = s.rules
	}
	var allow []string
	for _, a := range g.site.Addrs() {
		host := netip.PrefixFrom(a, a.BitLen()).String()
		if a.Is6() {
			host = "[" + host + "]"
		}
		allow = append(allow, host+":1-65535")
	}
	if s.allow != nil {
		allow = s.allow(g.site)
	}
	list, _ := json.Marshal(allow) // JSON is YAML
	g.config = fmt.Sprintf("instance: %s\ncgroup: %s\nlisten: \"%s\"\nstate_dir: %s\nrun_dir: %s\nkey: %s\npeers:\n  - {name: peer, address: \"%s\", key: \"%s\", allow: %s}\nrules:\n%s",
		g.name, g.site.CgroupPath, listener(g.site), g.path("state"), g.path("run"), g.path("key"), listener(peer.site), peer.key, list, rules(g.site, peer.site))
	g.writeConfig(g.config)
}

func (g *agent) writeConfig(text string) {
	g.t.Helper()
	if err := os.WriteFile(g.path("trunkline.yaml"), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// start runs the agent and waits until it is ready.
func (g *agent) start() {
	g.t.Helper()
	cmd := g.site.Command(context.Background(), binary(g.t), "agent", "--config", g.path("trunkline.yaml"))
	g.log = &syncBuffer{}
	cmd.Stdout, cmd.Stderr = g.log, g.log
	proc, err := g.site.Start(cmd)
	if err != nil {
		g.t.Fatalf("starting the agent at %s: %v", g.name, err)
	}
	exited := make(chan struct{})
	g.proc, g.exited = proc, exited
	go func() { _ = proc.Wait(); close(exited) }()
	g.t.Cleanup(func() {
		g.stop()
		g.cleanUp()
		if g.t.Failed() {
			g.t.Logf("the agent at %s:\n%s", g.name, tail(g.log.String(), 60))
		}
	})
	waitFor(g.t, 20*time.Second, "agent "+g.name+" ready", func() bool {
		select {
		case <-exited:
			g.t.Fatalf("the agent at %s ended: %s", g.name, g.log.String())
		default:
		}
		return exec.Command(binary(g.t), "status", "--json", "--config", g.path("trunkline.yaml")).Run() == nil
	})
}

// stop ends the agent with SIGINT, which drains.
func (g *agent) stop() { g.signal(os.Interrupt, testkit.Wait(40*time.Second)) }

// kill ends the agent with SIGKILL.
func (g *agent) kill() {
	g.signal(os.Kill, testkit.Wait(10*time.Second))
	g.killed = true
}

// cleanUp removes what a killed agent has left, so that the next test's agent of this name finds nothing of it.
func (g *agent) cleanUp() {
	if !g.killed {
		return
	}
	g.killed = false
	if out, err := g.site.Command(context.Background(), binary(g.t), "cleanup", "--config", g.path("trunkline.yaml")).CombinedOutput(); err != nil {
		g.t.Errorf("cleaning up after the agent at %s: %v: %s", g.name, err, out)
	}
}

func (g *agent) signal(s os.Signal, limit time.Duration) {
	g.t.Helper()
	if g.proc == nil {
		return
	}
	_ = g.proc.Process.Signal(s)
	select {
	case <-g.exited:
	case <-time.After(limit):
		_ = g.proc.Process.Kill()
		<-g.exited
		g.t.Errorf("the agent at %s did not end within %v of %v", g.name, limit, s)
	}
	g.proc = nil
}

// ask runs a command that reads the agent at JSON and decodes its answer.
func (g *agent) ask(into any, args ...string) {
	g.t.Helper()
	out := trunkline(g.t, append(args, "--json", "--config", g.path("trunkline.yaml"))...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		g.t.Fatalf("trunkline %v: %v in %s", args, err, out)
	}
}

// peerRow is what the tests read of `trunkline peers --json`.
type peerRow struct {
	Name          string `json:"name"`
	Up            bool   `json:"up"`
	RawSent       uint64 `json:"raw_sent_bytes"`
	RawReceived   uint64 `json:"raw_received_bytes"`
	WireReceived  uint64 `json:"wire_received_bytes"`
	FlowsOpened   uint64 `json:"flows_opened"`
	FlowsAccepted uint64 `json:"flows_accepted"`
}

func (g *agent) peer() peerRow {
	g.t.Helper()
	var rows struct {
		Peers []peerRow `json:"peers"`
	}
	g.ask(&rows, "peers")
	if len(rows.Peers) != 1 {
		g.t.Fatalf("%d peers, want 1", len(rows.Peers))
	}
	return rows.Peers[0]
}

// featureView is a feature as status shows it.
type featureView struct {
	Name   string `json:"name"`
	On     bool   `json:"on"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy"`
}

// statusView is what the tests read of `trunkline status --json`.
type statusView struct {
	Features []featureView `json:"features"`
	Reasons  []struct {
		Name  string `json:"name"`
		Count uint64 `json:"count"`
	} `json:"reasons"`
}

func (s *statusView) reason(name string) uint64 {
	for _, r := range s.Reasons {
		if r.Name == name {
			return r.Count
		}
	}
	return 0
}

func (w *world) waitPeers() {
	w.t.Helper()
	for _, g := range []*agent{w.a, w.b} {
		waitFor(w.t, 10*time.Second, "peer of "+g.name+" up", func() bool { return g.peer().Up })
	}
}

// waitFor waits for what becomes so within the limit on a machine of full speed.
func waitFor(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	limit = testkit.Wait(limit)
	for end := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain: %s", limit, what)
		}
	}
}

// client runs a role at a site and returns what it saw.
func client(t *testing.T, at *lab.Site, role string, args ...string) *outcome {
	t.Helper()
	return startClient(t, at.Namespace, role, args...).wait()
}

// running is a client child at work.
type running struct {
	t     *testing.T
	proc  *lab.Process
	stdin io.WriteCloser
	out   bytes.Buffer
	errs  bytes.Buffer
}

func startClient(t *testing.T, in *lab.Namespace, role string, args ...string) *running {
	t.Helper()
	cmd, r := in.Command(context.Background(), os.Args[0], args...), &running{t: t}
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	cmd.Stdout, cmd.Stderr = &r.out, &r.errs
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	if r.proc, err = in.Start(cmd); err != nil {
		t.Fatalf("starting client %s: %v", role, err)
	}
	return r
}

func (r *running) wait() *outcome {
	r.t.Helper()
	if err := r.proc.Wait(); err != nil {
		r.t.Fatalf("client: %v\n%s", err, r.errs.String())
	}
	o := &outcome{}
	if err := json.Unmarshal(r.out.Bytes(), o); err != nil {
		r.t.Fatalf("client said %q: %v", r.out.String(), err)
	}
	return o
}

// wantAll fails the test unless all n exchanges ended well.
func (o *outcome) wantAll(t *testing.T, n int) {
	t.Helper()
	if o.OK != n || o.Wrong != 0 || len(o.Errors) != 0 {
		t.Fatalf("%d of %d exchanges right, %d wrong, errors %v %s", o.OK, n, o.Wrong, o.Errors, o.Example)
	}
}

// at is an address and port as text.
func at(addr netip.Addr, port uint16) string { return netip.AddrPortFrom(addr, port).String() }

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
