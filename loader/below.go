// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// egressBelow finds cgroups below the instance's that carry egress programs of their own: filters by unit or user. What
// is steered leaves as the agent's, so they no longer see it.
func (l *Loader) egressBelow() (first string, count int) {
	// Cgroups come and go while they are walked; one that cannot be read is left out.
	_ = filepath.WalkDir(l.cgroup, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == l.cgroup {
			return nil
		}
		if n, err := countPrograms(path, ebpf.AttachCGroupInetEgress); err != nil || n == 0 {
			return nil
		}
		if count == 0 {
			first = path
		}
		count++
		return nil
	})
	return first, count
}

func countPrograms(cgroup string, at ebpf.AttachType) (int, error) {
	dir, err := os.Open(cgroup)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: at})
	if err != nil {
		return 0, err
	}
	return len(r.Programs), nil
}

// steeringDetail says what is steered, and whose filters do not see it.
func (l *Loader) steeringDetail(what string) string {
	detail := fmt.Sprintf("%s below %s", what, l.cgroup)
	if first, n := l.egressBelow(); n > 0 {
		l.log.Warn("cgroups below carry egress programs, which do not see what is steered; exclude those that rely on them",
			"first", first, "count", n)
		detail += fmt.Sprintf("; the egress programs of %d cgroups (%s) do not see what is steered", n, first)
	}
	return detail
}
