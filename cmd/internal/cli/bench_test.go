// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trunkline/trunkline/cc"
	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/bench/benchtest"
	"github.com/trunkline/trunkline/internal/testkit"
)

// benchRun prepares a call of the executable that the scripts use too, and looks at the end for what it left.
func benchRun(t *testing.T, args ...string) (c *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	testkit.NeedRoot(t)
	temp := t.TempDir()
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	c = exec.Command(testkit.NeedProgram(t, "trunkline"), append([]string{"bench"}, args...)...)
	c.Env = append(os.Environ(), "TMPDIR="+temp, "WORK="+temp)
	c.Stdout, c.Stderr = stdout, stderr
	t.Cleanup(func() {
		if c.Process == nil {
			return
		}
		for _, pattern := range []string{
			temp + "/*", fmt.Sprintf("/sys/fs/cgroup/trunkline-lab-%d-*", c.Process.Pid),
			fmt.Sprintf("/sys/fs/cgroup/*/trunkline-lab-%d-*", c.Process.Pid),
			fmt.Sprintf("/sys/fs/bpf/trunkline/bench-%d-*", c.Process.Pid),
		} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
	})
	return c, stdout, stderr
}

func TestBenchOverhead(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c, stdout, stderr := benchRun(t, "overhead", "--rounds", "1", "--time", testkit.Wait(20*time.Millisecond).String(),
		"--settings", "marks,steered", "--json", "--out", out)
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var r struct {
		Machine bench.Machine
		Rows    []json.RawMessage
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if r.Machine.Bench != "overhead" || r.Machine.Kernel != kernelRelease() || r.Machine.ExactTime != testkit.Exact() {
		t.Errorf("the machine is %+v", r.Machine)
	}
	rows := make([]any, len(r.Rows))
	for i := range r.Rows {
		rows[i] = r.Rows[i]
	}
	benchtest.CheckRows(t, rows)
	checkOverhead(t, r.Rows)
	for _, name := range []string{"table.txt", "bench.json", "cpu-per-connect.svg"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
}

// checkOverhead looks for what cannot be otherwise, however slow the machine is.
func checkOverhead(t *testing.T, rows []json.RawMessage) {
	t.Helper()
	seen := map[string]bool{}
	for _, text := range rows {
		var row struct {
			Part, Setting, Traffic, Program string
			Connects                        uint64
			Steered                         float64
			CPU                             float64 `json:"cpu_us_per_connect"`
			Goodput                         float64 `json:"goodput_Mbps"`
			Runs                            float64 `json:"runs_per_connect"`
			Ns                              float64 `json:"ns_per_run"`
		}
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		name := strings.Join(strings.Fields(row.Part+" "+row.Setting+" "+row.Traffic+" "+row.Program), " ")
		seen[name] = true
		switch name {
		case "connect none", "connect marks":
			if row.Connects == 0 || row.CPU <= 0 || row.Steered != 0 {
				t.Errorf("%s", text)
			}
		case "connect steered":
			if row.Connects == 0 || row.Steered < 0.99 {
				t.Errorf("not all connections were steered: %s", text)
			}
		case "bulk none", "bulk marks", "bulk steered":
			if row.Goodput <= 0 {
				t.Errorf("%s", text)
			}
		case "program steered connect tl_connect4":
			if row.Runs < 1 || row.Ns <= 0 {
				t.Errorf("%s", text)
			}
		}
	}
	for _, name := range []string{"connect none", "bulk none", "connect steered", "bulk steered", "idle steered",
		"program steered connect tl_connect4", "program steered bulk tl_sockops"} {
		if !seen[name] {
			t.Errorf("there is no row %q", name)
		}
	}
	if !seen["connect marks"] && !seen["off marks"] {
		t.Error("marks are neither measured nor off")
	}
}

func TestBenchInterrupted(t *testing.T) {
	c, stdout, stderr := benchRun(t, "overhead", "--settings", "steered", "--time", "1m")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	cgroup := func() []string {
		var found []string
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			procs, _ := filepath.Glob(fmt.Sprintf("%s/trunkline-lab-%d-*/b/cgroup.procs", mount, c.Process.Pid))
			found = append(found, procs...)
		}
		return found
	}
	// In the midst of it: the far site has its server, and perhaps an agent.
	for deadline := time.Now().Add(testkit.Wait(20 * time.Second)); len(cgroup()) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(testkit.Wait(500 * time.Millisecond))
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	if c.ProcessState.ExitCode() != exitError || strings.TrimSpace(stderr.String()) != "trunkline: interrupted" || stdout.Len() > 0 {
		t.Errorf("%v, stdout %q, stderr %q", err, stdout, stderr)
	}
}

func offersReno(t *testing.T) bool {
	t.Helper()
	offered, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(strings.Fields(string(offered)), "tl_reno")
}

// One path, ours beside the kernel's and the automatic choice, over the lab's emulator.
func TestBenchCC(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	c, stdout, stderr := benchRun(t, "cc", "--algorithms", "reno,auto", "--rate", "10Mbit", "--delay", "20ms", "--loss", "1e-3", "--runs", "1",
		"--time", testkit.Wait(time.Second).String(), "--emulation", "lab", "--json", "--out", out)
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	var r struct {
		Rows []json.RawMessage
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	rows := make([]any, len(r.Rows))
	seen := map[string]bool{}
	for i, text := range r.Rows {
		rows[i] = text
		var row struct {
			Algorithm, Source, Chosen string
			Run                       int
			Goodput                   float64 `json:"goodput_Mbps"`
			P95                       float64 `json:"p95_rtt_ms"`
		}
		if err := json.Unmarshal(text, &row); err != nil {
			t.Fatal(err)
		}
		seen[row.Algorithm+" "+row.Source] = true
		if row.Goodput <= 0 || row.Goodput > 10 || row.P95 < 20 || row.Run != 1 || (row.Chosen != "") != (row.Algorithm == "auto") {
			t.Errorf("%s", text)
		}
	}
	benchtest.CheckRows(t, rows)
	if !seen["reno builtin"] {
		t.Error("the kernel's reno was not run")
	}
	for _, name := range []string{"reno tl", "auto tl"} {
		if !seen[name] && !strings.Contains(stderr.String(), "not run") {
			t.Errorf("there is neither a row %q nor a reason in\n%s", name, stderr)
		}
	}
	for _, name := range []string{"table.txt", "bench.json", "rows.tsv"} {
		if content, err := os.ReadFile(filepath.Join(out, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(content), err)
		}
	}
	// By a link nothing outlives its last holder, and another agent may be one.
	if mode, err := cc.Probe(); err == nil && mode == cc.ByMap && offersReno(t) {
		t.Error("the kernel still offers tl_reno")
	}
}
