// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
)

// Every mode on a short path, over the lab's emulator: rows are complete, and the host's maxima are in the end what they were.
func TestBenchWindow(t *testing.T) {
	maxima := func() (all []string) {
		for _, name := range []string{"rmem_max", "wmem_max"} {
			b, err := os.ReadFile("/proc/sys/net/core/" + name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.TrimSpace(string(b)))
		}
		return all
	}
	before := maxima()
	out := filepath.Join(t.TempDir(), "out")
	c, stdout, stderr := benchRun(t, "window", "--rate", "20Mbit", "--rtt", "20ms", "--mtu", "1500", "--queue", "20", "--streams", "2",
		"--runs", "1", "--seconds", "1", "--json", "--out", out)
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if after := maxima(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("the host's maxima are %v, they were %v", after, before)
	}
	var r struct {
		Rows []json.RawMessage
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	rows, seen := make([]any, len(r.Rows)), map[string]bool{}
	for i, text := range r.Rows {
		rows[i] = text
		checkWindowRow(t, text, seen)
	}
	benchtest.CheckRows(t, rows)
	for _, mode := range []string{"kernel", "sysctl", "initcwnd", "bdp", "auto", "reserved"} {
		if !seen[mode] && !strings.Contains(stderr.String(), mode+" ") {
			t.Errorf("there is neither a row of %s nor a reason in\n%s", mode, stderr)
		}
	}
	for _, name := range []string{"table.txt", "bench.json", "rows.tsv", "throughput-20Mbit-20ms-mtu1500-queue20-streams2.svg"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
}

func checkWindowRow(t *testing.T, text json.RawMessage, seen map[string]bool) {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields("mode streams rate_Mbps rtt_ms mtu queue_bdp run t90_s goodput10_Mbps retransmits jain peak_buffer_bytes") {
		if _, ok := fields[name]; !ok {
			t.Errorf("there is no %s in %s", name, text)
		}
	}
	for name, want := range map[string]any{"streams": 2.0, "rate_Mbps": 20.0, "rtt_ms": 20.0, "mtu": 1500.0, "queue_bdp": 20.0, "run": 1.0,
		"goodput10_Mbps": nil, "emulation": "lab"} {
		if fields[name] != want {
			t.Errorf("%s is %v, want %v, in %s", name, fields[name], want, text)
		}
	}
	goodput, _ := fields["goodput_Mbps"].(float64)
	peak, _ := fields["peak_buffer_bytes"].(float64)
	jain, _ := fields["jain"].(float64)
	if goodput <= 0 || goodput > 20 || peak <= 0 || jain <= 0 || jain > 1 {
		t.Errorf("%s", text)
	}
	mode, _ := fields["mode"].(string)
	seen[mode] = true
}
