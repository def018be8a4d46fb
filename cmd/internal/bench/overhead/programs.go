// SPDX-License-Identifier: Apache-2.0

package overhead

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// program is what a BPF program has done while the kernel counted.
type program struct {
	runs    uint64
	runtime time.Duration
}

// programs reads the counters of all programs that a process holds, by name; programs of other agents on this host have
// the same names. A name that is loaded twice, as the fast path's verdict for its self-test, is summed.
func programs(pid int) (map[string]program, error) {
	ids, err := programIDs(pid)
	if err != nil {
		return nil, err
	}
	all := map[string]program{}
	for id := range ids {
		name, p, err := readProgram(id)
		if err != nil {
			return nil, err
		}
		sum := all[name]
		all[name] = program{sum.runs + p.runs, sum.runtime + p.runtime}
	}
	return all, nil
}

func readProgram(id ebpf.ProgramID) (string, program, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", program{}, fmt.Errorf("opening BPF program %d: %w", id, err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return "", program{}, fmt.Errorf("reading BPF program %d: %w", id, err)
	}
	stats, err := prog.Stats()
	if err != nil {
		return "", program{}, fmt.Errorf("reading the counters of BPF program %s: %w", info.Name, err)
	}
	return info.Name, program{stats.RunCount, stats.Runtime}, nil
}

// programIDs finds the descriptors of programs among those of the process.
func programIDs(pid int) (map[ebpf.ProgramID]bool, error) {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the agent's BPF programs: %w", err)
	}
	ids := map[ebpf.ProgramID]bool{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed since
		}
		for line := range strings.Lines(string(b)) {
			value, ok := strings.CutPrefix(line, "prog_id:")
			if !ok {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
				ids[ebpf.ProgramID(id)] = true
			}
		}
	}
	return ids, nil
}

// ran is what each program did between two readings, without those that never ran.
func ran(before, after map[string]program) map[string]program {
	did := map[string]program{}
	for name, p := range after {
		if n := p.runs - before[name].runs; n > 0 {
			did[name] = program{n, p.runtime - before[name].runtime}
		}
	}
	return did
}
