// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/internal/testkit"
)

// behaviourEnv says how the stand-in for an agent behaves.
const behaviourEnv = "DEMO_TEST_AGENT"

// TestMain makes the test binary stand in for trunkline: an agent that steers nothing, the web server and the client.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch args := os.Args[2:]; os.Args[1] {
	case "agent":
		err = standIn(ctx, args[1])
	case "cleanup":
	case "demo":
		err = Run(ctx, Options{Rate: 50e6, RTT: 10 * time.Millisecond, File: os.Args[2], Stdout: os.Stdout, Stderr: os.Stderr})
	case ServeCommand:
		err = ServeMain(ctx, args[1], args[2:])
	case FetchCommand:
		err = FetchMain(ctx, args[0], args[1])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func standIn(ctx context.Context, path string) error {
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	if os.Getenv(behaviourEnv) == "dies" {
		return errors.New("this agent cannot live")
	}
	l, err := control.Listen(c.Socket(), "")
	if err != nil {
		return err
	}
	return control.Serve(ctx, l, backend{}, slog.New(slog.DiscardHandler))
}

type backend struct{ control.Reserver }

func (backend) Status() (control.Status, error) {
	return control.Status{
		Peers:    []control.Peer{{Name: "other", Up: true}},
		Features: []control.Feature{{Name: "splice", Detail: "a stand-in"}},
	}, nil
}

func (backend) Flows() ([]control.Flow, error) {
	leg := control.Flow{Kind: "leg", RuleID: 2, Congestion: "bbr", WindowBytes: windowLeast}
	return []control.Flow{leg}, nil
}

func (backend) Paths() ([]control.Path, error)      { return nil, nil }
func (backend) History() (control.Histories, error) { return control.Histories{}, nil }
func (backend) PurgeHistory(string, string) (control.Purged, error) {
	return control.Purged{}, nil
}
func (backend) Peers() ([]control.Peer, error) { return nil, nil }
func (backend) Explain(netip.AddrPort) (control.Explanation, error) {
	return control.Explanation{}, nil
}
func (backend) Reload() (control.Reloaded, error) { return control.Reloaded{}, nil }
func (backend) Drain() error                      { return nil }

// options is a quick demo with the stand-in, whose traces the test looks for at the end.
func options(t *testing.T, size int) Options {
	t.Helper()
	testkit.NeedRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "data")
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(temp, "*"))
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			cgroups, _ := filepath.Glob(fmt.Sprintf("%s/trunkline-lab-%d-*", mount, os.Getpid()))
			left = append(left, cgroups...)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return Options{Rate: 50e6, RTT: 10 * time.Millisecond, Seed: 1, File: path, Binary: exe, Stdout: io.Discard, Stderr: io.Discard}
}

func TestRun(t *testing.T) {
	o := options(t, 2e6)
	o.JSON = true
	var out, progress bytes.Buffer
	o.Stdout, o.Stderr = &out, &progress
	if err := Run(t.Context(), o); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	var r map[string]any
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	for _, key := range strings.Fields("direct_s cold_s warm_s wan_bytes_direct wan_bytes_cold wan_bytes_warm congestion window_bytes " +
		"retransmits retransmits_marked first_marked marks splice sha256_ok file_bytes rate_Mbps rtt_ms loss") {
		if _, ok := r[key]; !ok {
			t.Errorf("no %s in %s", key, &out)
		}
	}
	if r["sha256_ok"] != true || r["splice"] != "off: a stand-in" || r["congestion"] != "bbr" || r["window_bytes"] != float64(windowLeast) {
		t.Errorf("got %s", &out)
	}
	if n := r["wan_bytes_direct"].(float64); n < 2e6 || n > 4e6 {
		t.Errorf("%.0f bytes on the WAN for 2 MB", n)
	}
	if s := r["direct_s"].(float64); s < 2e6*8/50e6 {
		t.Errorf("2 MB in %.3f s over 50 Mbit/s", s)
	}
}

func TestRunWithoutCurlAndNginx(t *testing.T) {
	o := options(t, 1e5)
	t.Setenv("PATH", t.TempDir())
	if lookNginx() != "" {
		t.Log("nginx is found without a PATH: the own server is not tried")
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestAgentThatDies(t *testing.T) {
	o := options(t, 1e5)
	t.Setenv(behaviourEnv, "dies")
	err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "this agent cannot live") {
		t.Errorf("the error does not show the agent's log: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	o := options(t, 2e6)
	o.Rate = 1e6
	ctx, cancel := context.WithCancel(t.Context())
	o.Stderr = writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("direct")) {
			cancel() // in the midst of the fetch
		}
		return len(b), nil
	})
	if err := Run(ctx, o); err == nil || err.Error() != "interrupted" {
		t.Errorf("got %v", err)
	}
}

// trunkline demo | head: the pipe's end must not be that of a demo which has yet to remove everything.
func TestReaderGone(t *testing.T) {
	o := options(t, 1e5)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	var progress bytes.Buffer
	demo := exec.Command(o.Binary, "demo", o.File)
	demo.Stdout, demo.Stderr = w, &progress
	err = demo.Run()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 || !strings.Contains(progress.String(), "broken pipe") {
		t.Errorf("%v\n%s", err, &progress)
	}
	left, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/trunkline-lab-%d-*", demo.Process.Pid))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestHold(t *testing.T) {
	o := options(t, 1e5)
	o.Hold = true
	ctx, cancel := context.WithCancel(t.Context())
	var hint string
	o.Stderr = writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("curl")) {
			hint = string(b)
			cancel()
		}
		return len(b), nil
	})
	if err := Run(ctx, o); err != nil || hint == "" {
		t.Errorf("hint %q, error %v", hint, err)
	}
}

func TestBadFile(t *testing.T) {
	o := options(t, 0)
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file gave %v", err)
	}
	o.File = t.TempDir()
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a directory gave %v", err)
	}
}

func TestTableFits(t *testing.T) {
	r := newResult(Options{Rate: 10e6, RTT: 50 * time.Millisecond, Loss: 0.001}, file{"/usr/local/bin/trunkline", 987654321}, [32]byte{})
	for _, f := range []Fetch{
		{Name: "direct", Seconds: 12345.67, WANBytes: 1234567890, Congestion: "cubic", Retransmits: 123456, RetransmitsMarked: 123456},
		{Name: "cold", Seconds: 4000, WANBytes: 400000000, Congestion: "bbr", WindowBytes: 1 << 20},
		{Name: "warm", Seconds: 0.21, WANBytes: 20000, Congestion: "bbr", WindowBytes: 1 << 20},
	} {
		r.add(f, true)
	}
	r.Marks, r.Splice = "off: the kernel has no tcx, which marks need at the interfaces", "on"
	var b strings.Builder
	if err := r.write(&b, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	t.Log(b.String())
}

func TestDifferenceIsShown(t *testing.T) {
	r := newResult(Options{}, file{"x", 1}, [32]byte{})
	r.add(Fetch{Name: "direct"}, true)
	r.add(Fetch{Name: "cold"}, false)
	var b strings.Builder
	r.table(&b)
	if r.SHA256OK || !strings.Contains(b.String(), "cold fetch DIFFERS") {
		t.Error(b.String())
	}
}

func TestChosenFile(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "exe")
	if err := os.WriteFile(exe, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(exe, goodFile); err != nil {
		t.Fatal(err)
	}
	if f, err := chooseFile("", exe); err != nil || f.path != exe {
		t.Errorf("chose %v: %v", f, err)
	}
	if err := os.Truncate(exe, 1000); err != nil {
		t.Fatal(err)
	}
	if f, err := chooseFile("", exe); err == nil && f.size < minFile {
		t.Errorf("chose %v", f)
	} else {
		t.Logf("with a small executable: %v, %v", f, err)
	}
}

func TestWindowFor(t *testing.T) {
	for _, c := range []struct {
		rate uint64
		rtt  time.Duration
		want uint32
	}{
		{10e6, 50 * time.Millisecond, 1 << 20},   // BDP 62.5 kB
		{100e6, 135 * time.Millisecond, 8 << 20}, // 1.69 MB
		{1e9, 135 * time.Millisecond, 64 << 20},  // 16.9 MB
		{1e12, time.Second, windowMost},
	} {
		if got := windowFor(c.rate, c.rtt); got != c.want {
			t.Errorf("%d bit/s, %v: window %d, want %d", c.rate, c.rtt, got, c.want)
		}
	}
}
