// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/internal/testkit"
)

var update = flag.Bool("update", false, "write the tables in testdata anew")

// fakeAgent answers with an agent's busy day.
type fakeAgent struct {
	control.Reserver
	left []int // flows in the engine, call by call
}

func (f *fakeAgent) Status() (control.Status, error) {
	active := 3
	if len(f.left) > 0 {
		active, f.left = f.left[0], f.left[1:]
	}
	peers, _ := f.Peers()
	h, _ := f.History()
	return control.Status{
		Instance: "east", Health: control.Degraded, Version: "v0.1.0", Protocol: 1, Kernel: "6.18.44", PID: 4711,
		UptimeSeconds: 11520, Config: "/etc/trunkline/trunkline.yaml", Cgroup: "/", Listen: []string{"[::]:4820"}, Rules: 3,
		ActiveFlows: active, Peers: peers, History: h.History, Auto: ptr(someAuto(false)),
		Problems: []string{"peer osaka is down: dial tcp 198.51.100.7:4820: connect: connection refused; see trunkline peers"},
		Features: []control.Feature{
			{Name: "steering-ipv4", On: true, Detail: "connect4, getpeername4, getsockname4 on /sys/fs/cgroup"},
			{Name: "splice", Detail: "the self-test of this kernel's sockmap failed: FIONREAD reads 0 while redirected bytes wait to be read",
				Remedy: "none needed; `splice: force` overrides where the applications are known"},
			{Name: "pins", Detail: "no bpffs is mounted at /sys/fs/bpf", Remedy: "mount -t bpf bpf /sys/fs/bpf, then restart the agent"},
		},
		Reasons: []control.Reason{
			{Name: "on-link", Intended: true, Count: 1200, Meaning: "the destination is on a directly connected network", Action: "none: nothing to gain"},
			{Name: "peer-down", Count: 12, Meaning: "the peer agent does not answer on its control connection", Action: "see `trunkline peers`; check that the peer runs and that its port is reachable"},
		},
	}, nil
}

func (f *fakeAgent) History() (control.Histories, error) {
	return control.Histories{
		History: control.History{MemoryBytes: 200 << 20, MemoryLimit: 256 << 20, IndexBytes: 30 << 20, DiskBytes: 1200 << 20,
			DiskLimit: 10 << 30, Directory: "/var/lib/trunkline/default/history"},
		Groups: []control.GroupHistory{
			{Peer: "busan", Direction: "sent", Group: "web", Held: 1 << 30, Bound: 9 << 30, Memory: 180 << 20, Disk: 1064 << 20,
				Index: 30 << 20, Known: 900 << 20, Generation: 1796073600000000000},
			{Peer: "busan", Direction: "received", Group: "web", Held: 136 << 20, Bound: 9 << 30, Memory: 20 << 20, Disk: 136 << 20,
				Known: 130 << 20, Generation: 1796073600000000001, Problem: "no space left on device"},
		},
	}, nil
}

func (f *fakeAgent) PurgeHistory(string, string) (control.Purged, error) {
	return control.Purged{Histories: 2, Bytes: 1200 << 20}, nil
}

func (f *fakeAgent) Peers() ([]control.Peer, error) {
	return []control.Peer{
		{ID: 1, Name: "busan", Address: "203.0.113.9:4820", Up: true, RTTMicroseconds: 50340, LegsWarm: 6, LegsUsed: 2,
			RawSent: 18_000, WireSent: 9_000, RawReceived: 42_000_000, WireReceived: 21_500_000, History: 44 << 20, Codec: "native+zstd", Codecs: []string{"native"}},
		{ID: 2, Name: "osaka", Address: "198.51.100.7:4820", Reason: "peer-down", Detail: "dial tcp 198.51.100.7:4820: connect: connection refused", Codec: "wanproxy"},
	}, nil
}

func (f *fakeAgent) Paths() ([]control.Path, error) {
	return []control.Path{
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Peer: "busan", Flows: 1204, SRTTMicroseconds: 50_900, MinRTT: 50_120,
			DeliveredBps: 1_190_000, BytesAcked: 44 << 20, BytesReceived: 9 << 30, SegmentsOut: 40_000, Retransmits: 412, IdleSeconds: 0.3,
			Choice: ptr(someChoice("203.0.113.0/24", "busan", false))},
		{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Choice: ptr(someChoice("198.51.100.0/24", "", true)), IdleSeconds: 7000},
		{Prefix: netip.MustParsePrefix("2001:db8:100::/48"), Flows: 1, BytesAcked: 12, IdleSeconds: 7400},
	}, nil
}

func (f *fakeAgent) Flows() ([]control.Flow, error) {
	ap := netip.MustParseAddrPort
	return []control.Flow{
		{Cookie: 1, Kind: "steered", Local: ap("127.0.0.1:40112"), Remote: ap("203.0.113.9:80"), RuleID: 1, Rule: "web", Peer: "busan",
			AgeSeconds: 12.4, Engine: &control.EngineFlow{RawSent: 300, WireSent: 320, RawReceived: 10_000_000, WireReceived: 51_000, Codec: "native+zstd", Effort: "default"}},
		{Cookie: 2, Kind: "leg", Local: ap("192.0.2.1:51000"), Remote: ap("203.0.113.9:4820"), RuleID: 1, Rule: "web", Peer: "busan",
			AgeSeconds: 12.4, Congestion: "bbr", Priority: "retransmit", WindowBytes: 8 << 20, CwndPackets: 118, SRTTMicroseconds: 50_900,
			Retransmits: 12, Marked: 12, Auto: true, Choice: ptr(someChoice("203.0.113.0/24", "busan", false))},
		{Cookie: 3, Kind: "plain", Local: ap("[2001:db8::1]:443"), Remote: ap("[2001:db8:1234:5678:9abc:def0:1234:5678]:50123"), RuleID: 3,
			Rule: "everything-else-there-is", Passive: true, AgeSeconds: 7300, Congestion: "cubic", CwndPackets: 10,
			SRTTMicroseconds: 182_000, CongestionError: "no such file or directory"},
		{Cookie: 4, Kind: "plain", Local: ap("192.0.2.1:51002"), Remote: ap("198.51.100.7:5432"), RuleID: 2, Rule: "db", AgeSeconds: 0.8,
			Congestion: "tl_highspeed", Auto: true, CwndPackets: 10, SRTTMicroseconds: 9_100, Reason: "peer-down"},
		{Cookie: 5, Kind: "plain", Local: ap("192.0.2.1:51003"), Remote: ap("192.0.2.9:22"), AgeSeconds: 60, Congestion: "cubic"},
	}, nil
}

func ptr[T any](v T) *T { return &v }

func someChoice(prefix, peer string, dryRun bool) control.Choice {
	return control.Choice{
		Prefix: netip.MustParsePrefix(prefix), Peer: peer, Chosen: "bbr", Previous: "tl_illinois", Class: "random",
		Why: "losses come whatever the queue: 12 of 14 with less than a quarter of it filled", Since: time.Now().Add(-75*time.Hour - 30*time.Minute),
		Updated: time.Now().Add(-51*time.Hour - 30*time.Minute), MinRTT: 50_120, RateBps: 1_190_000, LossRate: 0.0103, Changes: 1, DryRun: dryRun,
	}
}

func someAuto(dryRun bool) control.Auto {
	return control.Auto{
		DryRun: dryRun, Explore: dryRun, HoldSeconds: 10, Prior: "tl_illinois", Paths: 12, Changes: 1,
		Candidates: []control.Candidate{{Name: "tl_illinois", Usable: true}, {Name: "bbr", Usable: true},
			{Name: "yeah", Why: "this kernel does not offer it now", Remedy: "modprobe tcp_yeah, or name tl_yeah, which needs no module"}},
	}
}

// Explain knows three destinations: one in a dry run, one that is a neighbour, and all others.
func (f *fakeAgent) Explain(r netip.AddrPort) (control.Explanation, error) {
	a := &control.AutoExplanation{Auto: someAuto(r.Port() == 81), Asked: true, Path: netip.PrefixFrom(r.Addr(), 24).Masked(),
		Choices: []control.Choice{someChoice("203.0.113.0/24", "", r.Port() == 81)}}
	if a.New = "bbr"; a.DryRun {
		a.New = ""
	}
	if r.Port() == 82 {
		a.Exempt, a.New, a.Choices = "the address is on a network that this host is connected to", "", nil
	}
	return control.Explanation{
		Remote: r, Matched: true, Rule: "web", Line: 12, Auto: a, Gets: []control.Setting{{Name: "congestion", Value: "auto: chosen for each path"}},
		Steps: []control.Step{{Rule: "web", Line: 12, Match: "203.0.113.0/24", Applies: true, Why: "the longest prefix"}},
	}, nil
}
func (f *fakeAgent) Reload() (control.Reloaded, error) {
	return control.Reloaded{}, errors.New("t.yaml:1:1: first\nt.yaml:2:1: second")
}
func (f *fakeAgent) Drain() error { return nil }

// with runs the command line against a fake agent.
func with(t *testing.T, f *fakeAgent, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := control.Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- control.Serve(ctx, l, f, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var out, errs bytes.Buffer
	env := Env{Stdout: &out, Stderr: &errs, ConfigPath: "/nonexistent", StateRoot: "/nonexistent", RunRoot: "/nonexistent"}
	code = Run(ctx, env, append(args, "--socket", socket))
	return code, out.String(), errs.String()
}

// The tables are what people see: they are kept in testdata, and fit a page.
func TestTables(t *testing.T) {
	for name, args := range map[string][]string{
		"status": {"status"}, "peers": {"peers"}, "flows": {"flows"}, "flows-all": {"flows", "--all"},
		"flows-rule": {"flows", "--rule", "2"}, "flows-remote": {"flows", "--remote", "203.0.113.0/24", "--peer", "busan"},
		"flows-none": {"flows", "--rule", "nothing"}, "flows-paths": {"flows", "--paths"},
		"explain-auto": {"explain", "203.0.113.9:80"}, "explain-dry-run": {"explain", "203.0.113.9:81"},
		"explain-exempt": {"explain", "203.0.113.9:82"}, "history": {"history"}, "history-purge": {"history", "purge", "--peer", "busan"},
	} {
		t.Run(name, func(t *testing.T) {
			code, got, errs := with(t, &fakeAgent{}, args...)
			if code != 0 || errs != "" {
				t.Fatalf("exit %d, %s", code, errs)
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > pageWidth {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestJSONIsOneObject(t *testing.T) {
	for _, c := range []struct{ command, holds string }{
		{"status", `"prior": "tl_illinois"`}, {"peers", `"busan"`}, {"flows", `"class": "random"`}, {"flows --paths", `"previous": "tl_illinois"`},
		{"history", `"known_bytes"`}, {"history purge", `"histories": 2`}, {"explain 203.0.113.9:81", `"remedy": "modprobe tcp_yeah`},
	} {
		code, got, _ := with(t, &fakeAgent{}, append(strings.Fields(c.command), "--json")...)
		if code != 0 || !strings.HasPrefix(got, "{") || !strings.Contains(got, c.holds) {
			t.Errorf("%s --json: exit %d, without %s: %.200s", c.command, code, c.holds, got)
		}
	}
}

func TestDrainWaits(t *testing.T) {
	code, got, _ := with(t, &fakeAgent{left: []int{2, 1, 0}}, "drain")
	if code != 0 || got != "drained: no flow is left in the engine\n" {
		t.Errorf("exit %d, %q", code, got)
	}
}

func TestDrainGivesUp(t *testing.T) {
	start := time.Now()
	code, _, errs := with(t, &fakeAgent{}, "drain", "--timeout", "300ms")
	if code != exitError || !strings.Contains(errs, "3 flows still in the engine after 300ms") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if d := time.Since(start); d > testkit.Wait(5*time.Second) {
		t.Errorf("took %s", d)
	}
}

// Each mistake in a file that is reloaded is a line of its own.
func TestReloadShowsEveryProblem(t *testing.T) {
	code, _, errs := with(t, &fakeAgent{}, "reload")
	if code != exitError || errs != "trunkline: t.yaml:1:1: first\ntrunkline: t.yaml:2:1: second\n" {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// Every command says what it is for and shows how it is called.
func TestEveryCommandHasHelp(t *testing.T) {
	for _, c := range newRoot(System()).Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: no summary or no example", c.Name())
		}
	}
}
