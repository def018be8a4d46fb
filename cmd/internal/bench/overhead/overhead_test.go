// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
	"github.com/trunkline/trunkline/cmd/internal/config"
)

// What each setting writes is a configuration that an agent takes, with the rule that its name promises.
func TestConfigurations(t *testing.T) {
	head := fmt.Sprintf("instance: x\ncgroup: /x\nstate_dir: %s\nrun_dir: %[1]s\n", t.TempDir())
	key := "ed25519:" + strings.Repeat("A", 43) + "="
	load := func(lines []string) *config.Config {
		path := filepath.Join(t.TempDir(), "trunkline.yaml")
		if err := os.WriteFile(path, []byte(head+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path)
		if err != nil {
			t.Fatalf("%v in\n%s", err, strings.Join(lines, "\n"))
		}
		return c
	}
	for _, s := range settings[1:] {
		c := load(s.nearConfig("/x/a", key))
		if (len(c.Peers) > 0) != s.peer || len(c.Rules) != 1 {
			t.Errorf("%s: %d peers, %d rules", s.name, len(c.Peers), len(c.Rules))
			continue
		}
		if excludes := len(c.Rules[0].ExcludeCgroups) > 0; excludes != (s.name == "excluded") {
			t.Errorf("%s: excludes cgroups: %v", s.name, excludes)
		}
	}
	if c := load(farConfig(key)); len(c.Peers) != 1 || len(c.Peers[0].Allow) != 1 {
		t.Errorf("the far agent's peers are %v", c.Peers)
	}
}

func TestLoadsAndServer(t *testing.T) {
	const address = "127.81.82.83"
	ready, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeMain([]string{address}, w) }() // serves until the test's process ends
	line := make([]byte, 6)
	if _, err := io.ReadFull(ready, line); err != nil {
		t.Fatal(err, <-ended)
	}
	for _, kind := range []string{"connect", "bulk"} {
		var out bytes.Buffer
		err := LoadMain([]string{kind, address, "50ms", "2", "1"}, strings.NewReader("go\n"), &out)
		if err != nil {
			t.Fatal(kind, err)
		}
		var l Load
		if err := json.Unmarshal(bytes.TrimPrefix(out.Bytes(), []byte("ready\n")), &l); err != nil {
			t.Fatal(kind, err)
		}
		if l.Failed > 0 || l.Took < 50*time.Millisecond || kind == "connect" && l.Connects < leastConnects || kind == "bulk" && l.Bytes < chunk {
			t.Errorf("%s: %+v", kind, l)
		}
	}
}

func TestLoadWithoutServer(t *testing.T) {
	err := LoadMain([]string{"connect", "127.81.82.84", "50ms", "2", "1"}, strings.NewReader("go\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestCPUClock(t *testing.T) {
	before, err := cpuClock(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
	}
	if after, err := cpuClock(os.Getpid()); err != nil || after <= before {
		t.Errorf("%v after %v: %v", after, before, err)
	}
}

// made is what a run would have found: wide figures, two rounds.
func made() *overhead {
	o := &overhead{cell: 2 * time.Second, parallel: 4, seen: map[string]*found{}}
	o.defaults(false)
	for _, set := range o.chosen {
		f := o.seen[set.name]
		wide := []float64{123456.7, 98765.4}
		f.connects, f.failed, f.failure, f.steered = 1e9, 12, "connect: connection refused", 5e8
		f.connectsPerS, f.cpuUs, f.agentsCPUUs = wide, wide, wide
		f.goodputMbps, f.cpuSPerGB, f.agentsCPUSPerGB = wide, wide, wide
		if set.near {
			f.idleMsPerS, f.residentMB = wide, wide
			did := map[string]program{"tl_getsockname6": {1e6, time.Second}}
			f.addPrograms("connect", did, 1e5, 0)
			f.addPrograms("bulk", did, 0, 1e6)
		}
	}
	o.seen["marks"].off = "marks is off: " + strings.Repeat("the kernel has no tcx ", 6)
	return o
}

func TestReport(t *testing.T) {
	r := made().report()
	benchtest.CheckRows(t, r.Rows)
	parts := map[string]int{}
	for _, row := range r.Rows {
		text, _ := json.Marshal(row)
		var fields map[string]any
		_ = json.Unmarshal(text, &fields)
		parts[fields["part"].(string)]++
	}
	if want := fmt.Sprint(map[string]int{"off": 1, "connect": 5, "bulk": 5, "idle": 4, "program": 8}); fmt.Sprint(parts) != want {
		t.Errorf("the parts are %v, want %v", parts, want)
	}
	benchtest.CheckTables(t, r.Tables)
}

func TestPaired(t *testing.T) {
	if got := median(paired([]float64{11, 22, 36}, []float64{10, 20, 30}, minus)); got != 2 {
		t.Errorf("got %v", got)
	}
}

func TestBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--rounds=-1":       "--rounds -1 must be",
		"--time=1ms":        "--time 1ms must be",
		"--parallel=0":      "--parallel 0 must be",
		"--settings=none,x": `no setting is called "x"; there are none, rules,`,
	} {
		b := New()
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		b.Flags(f)
		if err := f.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if err := b.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gave %v", flag, err)
		}
	}
}
