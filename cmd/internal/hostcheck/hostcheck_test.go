// SPDX-License-Identifier: Apache-2.0

package hostcheck

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
)

func find(findings []Finding, subject string) Finding {
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Subject == subject })
	if i < 0 {
		return Finding{}
	}
	return findings[i]
}

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	held := taken.Addr().String()
	for _, c := range []struct {
		name, listen string
		running      *control.Status
		level        Level
		text         string
	}{
		{"taken", held, nil, Error, "is taken by another process"},
		{"taken by another agent", held, &control.Status{Listen: []string{"127.0.0.1:1"}}, Error, "is taken"},
		{"held by the agent", held, &control.Status{PID: 7, Listen: []string{held}}, OK, "held by the running agent, pid 7"},
		{"not here", "192.0.2.1:4820", nil, Error, "is not an address of this host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &report{}
			listen(r, &config.Config{Listen: netip.MustParseAddrPort(c.listen)}, c.running)
			if got := find(r.findings, "listen"); got.Level != c.level || !strings.Contains(got.Text, c.text) {
				t.Errorf("got %+v, want %s with %q", got, c.level, c.text)
			}
		})
	}
}

// Every finding that is not good says what to do.
func TestFindingsAreWhole(t *testing.T) {
	dir := t.TempDir()
	c := &config.Config{Cgroup: "/no/such/cgroup", BPFFS: dir, Key: filepath.Join(dir, "key"), Group: "no-such-group",
		Rules: []config.Rule{{Name: "r", Line: 3, Congestion: "nosuchcc", ExcludeUsers: []string{"no-such-user"}}},
		Peers: []config.Peer{{Name: "p", Line: 2, Address: "name.invalid:4820"}}, Interfaces: []string{"nosuch0"}}
	findings := Host(context.Background(), c, nil)
	for subject, level := range map[string]Level{"host": Error, "group": Error, "users": Error, "bpffs": Warning,
		"congestion": Warning, "interfaces": Warning, "peers": Warning, "key": OK} {
		if got := find(findings, subject); got.Level != level || got.Text == "" {
			t.Errorf("%s: got %+v, want %s", subject, got, level)
		}
	}
	for _, f := range findings {
		if f.Level != OK && !strings.ContainsAny(f.Text, ";:") {
			t.Errorf("%s says nothing of what to do: %s", f.Subject, f.Text)
		}
	}
}
