// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
	"github.com/trunkline/trunkline/cmd/internal/pathdb"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// TestMain makes the test binary stand in for trunkline at a site of a lab, and for an application that sends.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || strings.HasPrefix(os.Args[1], "-") {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[1] {
	case "agent":
		err = standIn(os.Args[3])
	case "cleanup":
	case "send":
		err = send(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func standIn(path string) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return Run(context.Background(), c, Options{Version: "test", Log: log})
}

// send writes until it is told to end.
func send(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	_, err = io.Copy(c, zeros{})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// wan is a lab with an agent at site A and a sink at B.
type wan struct {
	t      *testing.T
	lab    *lab.Lab
	agent  *labagent.Agent
	sink   netip.AddrPort
	path   netip.Prefix
	kernel string // A's default congestion control
	other  string // another one that can be chosen
}

func newWAN(t *testing.T, o lab.Options) *wan {
	t.Helper()
	testkit.NeedRoot(t)
	o.NoIPv6 = true
	l, err := lab.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &wan{t: t, lab: l}
	if w.agent, err = labagent.New(l.A, self, "autotest", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	listener, err := l.B.Listen("tcp", netip.AddrPortFrom(l.B.Addr4, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go drainAll(listener)
	w.sink = listener.Addr().(*net.TCPAddr).AddrPort()
	w.path = netip.PrefixFrom(w.sink.Addr(), 24).Masked()
	w.readKernel()
	return w
}

func drainAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

func (w *wan) readKernel() {
	w.t.Helper()
	var text []byte
	err := w.lab.A.Do(func() (err error) {
		text, err = os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control") // of the namespace of this thread
		return err
	})
	have, err2 := cc.Available()
	if err = errors.Join(err, err2); err != nil {
		w.t.Fatal(err)
	}
	w.kernel = strings.TrimSpace(string(text))
	i := slices.IndexFunc(have, func(name string) bool {
		return name != w.kernel && choice.CheckCandidate(name) == nil && !strings.HasPrefix(name, "tl_")
	})
	if i >= 0 {
		w.other = have[i]
		return
	}
	_, err = cc.Probe()
	testkit.NeedFeature(w.t, "struct-ops", err)
	w.other = "tl_cubic"
}

// configure writes the agent's configuration: one rule, and a section auto.
func (w *wan) configure(congestion, auto string) {
	w.t.Helper()
	lines := []string{fmt.Sprintf("rules: [{name: wan, remote: %q, congestion: %s}]", w.lab.B.Net4, congestion)}
	if auto != "" {
		lines = append(lines, "auto: "+auto)
	}
	if err := w.agent.Configure(lines...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wan) start() {
	w.t.Helper()
	if err := w.agent.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.agent.Stop() })
	if _, err := w.agent.WaitReady(w.t.Context(), false); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wan) stop() {
	w.t.Helper()
	if err := w.agent.Stop(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wan) reload() {
	w.t.Helper()
	if _, err := w.agent.Control().Reload(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// send starts an application at A that sends to the sink; end ends it.
func (w *wan) send() (end func()) {
	w.t.Helper()
	p, err := labagent.StartLogged(w.lab.A, filepath.Join(w.agent.Dir, "send.log"), w.agent.Binary, "send", w.sink.String())
	if err != nil {
		w.t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = p.Process.Signal(syscall.SIGTERM)
			if err := p.Wait(); err != nil {
				w.t.Errorf("the application: %v", err)
			}
		}
	}
	w.t.Cleanup(end)
	return end
}

// flow waits until the one flow to the sink is as wanted.
func (w *wan) flow(what string, ok func(control.Flow) bool) control.Flow {
	w.t.Helper()
	var last []control.Flow
	for end := time.Now().Add(testkit.Wait(15 * time.Second)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		flows, err := w.agent.Control().Flows(w.t.Context())
		if err != nil {
			w.t.Fatal(w.agent.Failure(err))
		}
		last = slices.DeleteFunc(flows, func(f control.Flow) bool { return f.Remote != w.sink })
		if len(last) == 1 && last[0].BytesAcked > 0 && ok(last[0]) {
			return last[0]
		}
	}
	w.t.Fatalf("%s: the flows are %+v%s", what, last, labagent.Tail(w.agent.Log()))
	return control.Flow{}
}

// gone waits until there is no flow to the sink.
func (w *wan) gone() {
	w.t.Helper()
	for end := time.Now().Add(testkit.Wait(15 * time.Second)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		flows, err := w.agent.Control().Flows(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if !slices.ContainsFunc(flows, func(f control.Flow) bool { return f.Remote == w.sink }) {
			return
		}
	}
	w.t.Fatal("the flow does not end")
}

func (w *wan) explain() *control.AutoExplanation {
	w.t.Helper()
	e, err := w.agent.Control().Explain(w.t.Context(), w.sink)
	if err != nil {
		w.t.Fatal(err)
	}
	return e.Auto
}

func (w *wan) log() string {
	w.t.Helper()
	text, err := os.ReadFile(w.agent.Log())
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// A flow of a rule with auto has the prior from its first packet, its path gets a choice that everything shows, and what is no
// candidate any more is replaced under the live flow.
func TestAutoGivesAndShows(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s, nosuchcc]}", w.other))
	w.start()
	end := w.send()
	f := w.flow("with the prior", func(f control.Flow) bool { return f.Auto && f.Congestion == w.other && f.Choice != nil })
	if f.Choice.Prefix != w.path || f.Choice.Chosen != w.other || f.Choice.Why == "" || f.Choice.DryRun {
		t.Errorf("the flow's choice is %+v", f.Choice)
	}
	e := w.explain()
	if e == nil || e.Path != w.path || e.New != w.other || e.Prior != w.other || len(e.Choices) != 1 || !e.Asked || e.Exempt != "" {
		t.Errorf("explain: %+v", e)
	}
	if len(e.Candidates) != 2 || !e.Candidates[0].Usable || e.Candidates[1].Usable || !strings.Contains(e.Candidates[1].Remedy, "modprobe tcp_nosuchcc") {
		t.Errorf("candidates: %+v", e.Candidates)
	}
	if !strings.Contains(w.log(), "name=nosuchcc why=") {
		t.Error("the log does not mention the candidate that is left out")
	}
	s, err := w.agent.Control().Status(t.Context())
	if err != nil || s.Auto == nil || s.Auto.Paths != 1 || s.Auto.Changes != 0 || s.Auto.DryRun || s.Auto.StateError != "" {
		t.Errorf("status: %+v, %v", s.Auto, err)
	}
	paths, err := w.agent.Control().Paths(t.Context())
	if err != nil || !slices.ContainsFunc(paths, func(p control.Path) bool { return p.Prefix == w.path && p.Choice != nil && p.Choice.Chosen == w.other }) {
		t.Errorf("paths: %+v, %v", paths, err)
	}

	w.configure("auto", fmt.Sprintf("{candidates: [%s]}", w.kernel))
	w.reload()
	f = w.flow("after a change of candidates", func(f control.Flow) bool { return f.Congestion == w.kernel })
	if f.Choice == nil || f.Choice.Chosen != w.kernel || f.Choice.Previous != w.other {
		t.Errorf("the flow's choice is %+v", f.Choice)
	}
	if text := w.log(); !strings.Contains(text, "another congestion control is chosen for a path") ||
		!strings.Contains(text, fmt.Sprintf("path=%s old=%s new=%s why=", w.path, w.other, w.kernel)) {
		t.Errorf("the log does not tell of the change%s", labagent.Tail(w.agent.Log()))
	}
	end()
	w.stop()
}

// A dry run sets nothing and says what it would.
func TestAutoDryRun(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s], dry_run: true}", w.other))
	w.start()
	end := w.send()
	f := w.flow("in a dry run", func(f control.Flow) bool { return f.Auto && f.Choice != nil })
	if f.Congestion != w.kernel || f.Choice.Chosen != w.other || !f.Choice.DryRun {
		t.Errorf("the flow has %s, its choice is %+v", f.Congestion, f.Choice)
	}
	e := w.explain()
	if !e.DryRun || e.New != "" || e.Prior != w.other || len(e.Choices) != 1 || e.Choices[0].Chosen != w.other {
		t.Errorf("explain: %+v", e)
	}
	// Switched on, it takes the live flow along.
	w.configure("auto", fmt.Sprintf("{candidates: [%s]}", w.other))
	w.reload()
	w.flow("after the dry run", func(f control.Flow) bool { return f.Congestion == w.other })
	end()
	w.stop()
}

// Rules come to say auto, and cease to, without a restart.
func TestAutoReload(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	for i, step := range []struct {
		congestion, auto, want string
		follows                bool
	}{
		{w.kernel, "", w.kernel, false},
		{"auto", fmt.Sprintf("{candidates: [%s]}", w.other), w.other, true},
		{w.kernel, "", w.kernel, false},
		{"auto", fmt.Sprintf("{candidates: [%s], dry_run: true}", w.other), w.kernel, true},
		{"auto", fmt.Sprintf("{candidates: [%s]}", w.other), w.other, true},
	} {
		w.configure(step.congestion, step.auto)
		if i == 0 {
			w.start()
		} else {
			w.reload()
		}
		end := w.send()
		f := w.flow(fmt.Sprintf("step %d", i), func(control.Flow) bool { return true })
		if f.Congestion != step.want || f.Auto != step.follows {
			t.Errorf("step %d: %s, follows %v; want %s, %v", i, f.Congestion, f.Auto, step.want, step.follows)
		}
		if s, err := w.agent.Control().Status(t.Context()); err != nil || (s.Auto != nil) != step.follows {
			t.Errorf("step %d: status %+v, %v", i, s.Auto, err)
		}
		end()
		w.gone()
	}
	w.stop()
}

// What was chosen is kept over a restart, and the first flow has it; a database that is damaged costs that and no more.
func TestAutoRestart(t *testing.T) {
	w := newWAN(t, lab.Options{Rate: 20e6, RTT: 20 * time.Millisecond})
	w.configure("auto", fmt.Sprintf("{candidates: [%s, %s]}", w.kernel, w.other))
	c, err := config.Load(w.agent.Config())
	if err != nil {
		t.Fatal(err)
	}
	// What nobody would choose for a path unknown.
	chosen := w.kernel
	if choice.New(choice.Options{Candidates: c.Auto.Candidates}).Prior() == chosen {
		chosen = w.other
	}
	now := time.Now()
	before := choice.Record{Path: choice.Path{Prefix: w.path}, Updated: now.Add(-time.Hour), Chosen: chosen, Class: choice.Random,
		Why: "told by the test", Since: now.Add(-2 * time.Hour)}
	db, _, err := pathdb.Open(c.PathDB(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Save(now, []choice.Record{before}), db.Close()); err != nil {
		t.Fatal(err)
	}
	w.start()
	if e := w.explain(); e.New != chosen || len(e.Choices) != 1 || e.Choices[0].Why != before.Why {
		t.Errorf("before any flow: %+v", e)
	}
	end := w.send()
	w.flow("after a restart", func(f control.Flow) bool {
		return f.Congestion == chosen && f.Choice != nil && f.Choice.Updated.After(now)
	})
	end()
	w.stop()
	db, found, err := pathdb.Open(c.PathDB(), time.Now())
	if err != nil || len(found) != 1 || found[0].Chosen != chosen || !found[0].Updated.After(before.Updated) {
		t.Errorf("the database holds %+v, %v", found, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(c.PathDB(), []byte("no database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if e := w.explain(); e.New == chosen || len(e.Choices) != 0 {
		t.Errorf("after the damage: %+v", e)
	}
	if _, err := os.Stat(c.PathDB() + ".damaged"); err != nil || !strings.Contains(w.log(), "the database of paths was damaged") {
		t.Errorf("the damaged file: %v%s", err, labagent.Tail(w.agent.Log()))
	}
	w.stop()
}

// What is on this host or on-link is no path.
func TestAutoExempt(t *testing.T) {
	h := newHost(t)
	client, _ := h.run(h.write("rules: [{name: all, remote: 0.0.0.0/0, congestion: auto}]\nauto: {candidates: [nosuchcc]}\n"))
	e, err := client.Explain(t.Context(), netip.MustParseAddrPort("127.0.0.1:80"))
	if err != nil || e.Auto == nil || e.Auto.Exempt != "the address is this host's" || e.Auto.New != "" {
		t.Errorf("explain: %+v, %v", e.Auto, err)
	}
	s, err := client.Status(t.Context())
	if err != nil || s.Health != control.Degraded || !strings.Contains(strings.Join(s.Problems, "\n"), "no candidate that this kernel has") {
		t.Errorf("without a usable candidate: %s, %v, %v", s.Health, s.Problems, err)
	}
}
