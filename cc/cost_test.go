// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/vmtest/lab"
)

// BenchmarkCallbacks measures what an algorithm's callbacks cost per ACK, by the kernel's own statistics.
func BenchmarkCallbacks(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: namespaces, cgroups, BPF")
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	p := newPath(b, lab.Options{Rate: 400e6, RTT: lossy.RTT, Loss: 1e-4, Seed: 5})
	for _, a := range catalogue {
		b.Run(a.Name, func(b *testing.B) {
			r, err := Register(a.Name, Options{Recorder: &notes{}, LockDir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			for b.Loop() {
				f := p.dial(b, a.Name)
				if err := f.send(32<<20, nil); err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
			total, acks := callbackCosts(b, a.Name)
			b.ReportMetric(total/acks, "ns/ACK")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// callbackCosts returns what the callbacks took in all, in ns, and how many ACKs there were: the most frequent callback has
// one run for each.
func callbackCosts(b *testing.B, name string) (total, acks float64) {
	b.Helper()
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return total, acks
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		info, err := p.Info()
		if err == nil && info.Type == ebpf.StructOps && strings.HasPrefix(info.Name, name+"_") {
			if s, err := p.Stats(); err == nil {
				total += float64(s.Runtime.Nanoseconds())
				acks = max(acks, float64(s.RunCount))
			}
		}
		p.Close()
	}
}
