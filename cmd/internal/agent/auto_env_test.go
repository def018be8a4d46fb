// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
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

	patience time.Duration // of flow
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
	w := &wan{t: t, lab: l, patience: 15 * time.Second}
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
	for end := time.Now().Add(testkit.Wait(w.patience)); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		flows, err := w.agent.Control().Flows(w.t.Context())
		if err != nil {
			w.t.Fatal(w.agent.Failure(err))
		}
		last = slices.DeleteFunc(flows, func(f control.Flow) bool { return f.Remote != w.sink })
		if len(last) == 1 && last[0].BytesAcked > 0 && ok(last[0]) {
			return last[0]
		}
	}
	text, _ := json.Marshal(last)
	w.t.Fatalf("%s: the flows are %s%s", what, text, labagent.Tail(w.agent.Log()))
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
