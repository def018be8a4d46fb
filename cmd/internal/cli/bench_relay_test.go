// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
)

// Everything is carried and measured by each way over each link; how fast is the machine's business.
func TestBenchRelay(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c, stdout, stderr := benchRun(t, "relay", "--rounds", "1", "--mebibytes", "1", "--json", "--out", out)
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
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
		var row struct {
			Part, Link, Way string
			Goodput         float64 `json:"goodput_Mbps"`
			Exchange        float64 `json:"exchange_us"`
		}
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		seen[row.Part+" "+row.Link+" "+row.Way] = true
		if row.Goodput+row.Exchange <= 0 {
			t.Errorf("%s", text)
		}
	}
	benchtest.CheckRows(t, rows)
	if len(seen) != 4*2*3 {
		t.Errorf("%d kinds of rows: %v", len(seen), seen)
	}
	for _, name := range []string{"table.txt", "bench.json"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
}
