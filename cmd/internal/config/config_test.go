// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/reserve"
	"github.com/trunkline/trunkline/loader/policy"
)

const (
	keyA = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	keyB = "ed25519:AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

func TestWholeFile(t *testing.T) {
	c, err := Parse("t.yaml", []byte(`
instance: east
cgroup: /system.slice
interfaces: [eth0, eth1]
listen: "[::]:4820"
group: adm
dscp: ef
mark_bit: 0x100
history: {memory: 64MiB, disk: 10GiB}
auto: {candidates: [tl_veno, cubic], dry_run: true, explore: true, hold: 1m30s}
peers:
  - {name: busan, address: "203.0.113.9:4820", key: "`+keyA+`", allow: ["10.2.0.0/16:80,5432", "[2001:db8::/32]:8000-8010"]}
rules:
  - remote: 203.0.113.0/24
    ports: [80, 5432, 8000-8002]
    congestion: bbr
    window: 8MiB
    pacing: 50Mbit
    priority: retransmit+slow-start
    dedup: {peer: busan, history: web}
    splice: off
    exclude_cgroups: [backup.slice]
    exclude_users: [backup, 1000]
  - remote: 2001:db8::/32
    dedup: {peer: busan}
  - remote: 198.51.100.7
    congestion: auto
    window: auto
  - remote: 192.0.2.0/24
    window: reserved
    weight: 3
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Path: "t.yaml", Instance: "east", Cgroup: "/system.slice", Interfaces: []string{"eth0", "eth1"},
		Listen:   netip.MustParseAddrPort("[::]:4820"),
		StateDir: "/var/lib/trunkline/east", RunDir: "/run/trunkline/east", Key: "/var/lib/trunkline/east/key",
		BPFFS: "/sys/fs/bpf", Group: "adm", DSCP: 46, MarkBit: 0x100, History: History{64 << 20, 10 << 30, "/var/lib/trunkline/east/history"},
		Auto:         Auto{Candidates: []string{"tl_veno", "cubic"}, DryRun: true, Explore: true, Hold: 90 * time.Second},
		Reservations: Reservations{Policy: reserve.Policy{ProbePort: DefaultProbePort}},
		Peers: []Peer{{Name: "busan", Line: 12, Address: "203.0.113.9:4820", Key: keyA, Allow: []Allow{
			{netip.MustParsePrefix("10.2.0.0/16"), []PortRange{{80, 80}, {5432, 5432}}},
			{netip.MustParsePrefix("2001:db8::/32"), []PortRange{{8000, 8010}}}}}},
		Rules: []Rule{
			{ID: 1, Name: "203.0.113.0/24:80,5432,8000-8002", Line: 14, Remote: netip.MustParsePrefix("203.0.113.0/24"),
				Ports: []uint16{80, 5432, 8000, 8001, 8002}, Congestion: "bbr", Window: policy.WindowFixed, WindowBytes: 8 << 20, Weight: 1, PacingBitps: 50_000_000,
				Priority: PrioritySlowStart, Peer: "busan", History: "web", Splice: SpliceOff,
				ExcludeCgroups: []string{"backup.slice"}, ExcludeUsers: []string{"backup", "1000"}},
			{ID: 2, Name: "2001:db8::/32", Line: 24, Remote: netip.MustParsePrefix("2001:db8::/32"), Weight: 1, Priority: PriorityOff,
				Peer: "busan", History: "2001:db8::/32", Splice: SpliceAuto},
			{ID: 3, Name: "198.51.100.7/32", Line: 26, Remote: netip.MustParsePrefix("198.51.100.7/32"), Priority: PriorityOff,
				Splice: SpliceAuto, Auto: true, Window: policy.WindowAuto, Weight: 1},
			{ID: 4, Name: "192.0.2.0/24", Line: 29, Remote: netip.MustParsePrefix("192.0.2.0/24"), Priority: PriorityOff,
				Splice: SpliceAuto, Window: policy.WindowReserved, Weight: 3},
		},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
}

func TestTuningAlone(t *testing.T) {
	c, err := Parse("t.yaml", []byte("rules: [{remote: 0.0.0.0/0, congestion: bbr}]"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.IsValid() || len(c.Peers) != 0 || c.Rules[0].Peer != "" || len(c.Warnings) != 0 {
		t.Errorf("got %+v", c)
	}
}

// Without the section the defaults hold; only rules that say so leave the choice to the agent.
func TestAutoDefaults(t *testing.T) {
	c, err := Parse("t.yaml", []byte("rules:\n  - {remote: 10.0.0.0/8, congestion: auto}\n  - {remote: 11.0.0.0/8}"))
	if err != nil {
		t.Fatal(err)
	}
	want := Auto{Candidates: choice.DefaultCandidates, Hold: 10 * time.Second}
	if !reflect.DeepEqual(c.Auto, want) {
		t.Errorf("got %+v, want %+v", c.Auto, want)
	}
	if !c.Rules[0].Auto || c.Rules[0].Congestion != "" || c.Rules[1].Auto || !c.ChoosesCongestion() || len(c.Warnings) > 0 {
		t.Errorf("got %+v, warnings %v", c.Rules, c.Warnings)
	}
	if c, err = Parse("t.yaml", []byte("rules: [{remote: 10.0.0.0/8, congestion: cubic}]")); err != nil || c.ChoosesCongestion() {
		t.Errorf("without such a rule: %+v, %v", c, err)
	}
}

func TestWarnings(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "nothing to do"},
		{"# only a comment\n", "nothing to do"},
		{"instance: a", "nothing to do"},
		{`listen: "[::]:4820"` + "\nrules: [{remote: 192.0.2.0/24}]", "no peer may connect"},
		{"rules: [{remote: 192.0.2.0/24, splice: force}]", "steers nothing"},
		{"auto: {dry_run: true}\nrules: [{remote: 192.0.2.0/24}]", "t.yaml:1:7: auto is set and no rule has congestion: auto"},
		{"listen: '[::]:4820'\npeers: [{name: a, key: '" + keyA + "'}]\nrules: [{remote: 192.0.2.0/24, dedup: {peer: a}}]", "cannot steer to it"},
	} {
		c, err := Parse("t.yaml", []byte(tc.in))
		if err != nil {
			t.Errorf("%q: %v", tc.in, err)
			continue
		}
		if text := c.Warnings.Error(); !strings.Contains(text, tc.want) {
			t.Errorf("%q: warnings %q, want one with %q", tc.in, text, tc.want)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "no configuration at",
		dir:                             "not a regular file",
		big:                             "the most is",
	} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
}

// FuzzParse: whatever the bytes, Parse gives either a configuration or problems with a place and a text.
func FuzzParse(f *testing.F) {
	for _, c := range badFiles {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 4096 {
			t.Skip("longer inputs only cost time")
		}
		c, err := Parse("f.yaml", []byte(in))
		if err == nil {
			if c.StateDir == "" || c.Instance == "" {
				t.Fatalf("a configuration without defaults: %+v", c)
			}
			return
		}
		ps, ok := err.(Problems)
		if !ok || len(ps) == 0 {
			t.Fatalf("error %v is no list of problems", err)
		}
		for _, p := range ps {
			if p.Line < 1 || p.Text == "" {
				t.Fatalf("problem without a place or a text: %+v", p)
			}
		}
	})
}
