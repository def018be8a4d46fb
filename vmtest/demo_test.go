// SPDX-License-Identifier: Apache-2.0

package vmtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/trunkline/trunkline/internal/testkit"
)

// demoResult is the demo's figures, as `trunkline demo --json` prints them.
type demoResult struct {
	DirectS           float64 `json:"direct_s"`
	ColdS             float64 `json:"cold_s"`
	WarmS             float64 `json:"warm_s"`
	WANBytesDirect    uint64  `json:"wan_bytes_direct"`
	WANBytesCold      uint64  `json:"wan_bytes_cold"`
	WANBytesWarm      uint64  `json:"wan_bytes_warm"`
	FileBytes         uint64  `json:"file_bytes"`
	Congestion        string  `json:"congestion"`
	WindowBytes       uint64  `json:"window_bytes"`
	Retransmits       uint64  `json:"retransmits"`
	RetransmitsMarked uint64  `json:"retransmits_marked"`
	FirstMarked       uint64  `json:"first_marked"`
	Splice            string  `json:"splice"`
	SHA256OK          bool    `json:"sha256_ok"`
}

func runDemo(t *testing.T, args ...string) demoResult {
	t.Helper()
	cmd := exec.Command(binary(t), append([]string{"demo", "--json"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, err.(*exec.ExitError).Stderr)
	}
	var d demoResult
	if err := json.Unmarshal(out, &d); err != nil {
		t.Fatalf("demo printed %s: %v", out, err)
	}
	t.Logf("%+v", d)
	return d
}

func (d demoResult) wantExact(t *testing.T) {
	t.Helper()
	if !d.SHA256OK {
		t.Error("the bytes differ")
	}
	if d.RetransmitsMarked != d.Retransmits || d.FirstMarked != 0 {
		t.Errorf("%d of %d retransmissions marked, and %d first transmissions", d.RetransmitsMarked, d.Retransmits, d.FirstMarked)
	}
}

func TestDemoKeepsItsPromise(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedTime(t)
	needFeatures(t, "splice")
	d := runDemo(t)
	d.wantExact(t)
	if d.FileBytes < 10_000_000 {
		t.Errorf("the file has %d bytes, want at least 10 MB", d.FileBytes)
	}
	if d.WarmS*15 > d.DirectS {
		t.Errorf("warm %.2f s, direct %.2f s: want 15 times faster", d.WarmS, d.DirectS)
	}
	if d.WANBytesWarm*200 > d.FileBytes {
		t.Errorf("warm cost %d bytes on the WAN, want at most 1/200 of %d", d.WANBytesWarm, d.FileBytes)
	}
	if d.Congestion == "" || d.WindowBytes == 0 || d.Splice != "on" {
		t.Errorf("congestion %q, window %d, splice %q: want what the demo's rule says", d.Congestion, d.WindowBytes, d.Splice)
	}
}

func TestDemoMarksEveryRetransmission(t *testing.T) {
	testkit.NeedRoot(t)
	needFeatures(t, "marks")
	d := runDemo(t, "--loss", "2%")
	d.wantExact(t)
	if d.Retransmits < 200 {
		t.Errorf("%d retransmissions, want at least 200 to judge by", d.Retransmits)
	}
}

func TestDemoEndsCleanlyOnInterrupt(t *testing.T) {
	testkit.NeedRoot(t)
	before := footprint(t)
	cmd := exec.Command(binary(t), "demo")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted demo exits with 0")
	}
	before.wantSame(t)
}
