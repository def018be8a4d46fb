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

// BenchmarkCallbacks measures what an algorithm's callbacks cost per ACK, by the kernel's own statistics: with super-packets, when
// an ACK is rare and finds the caches cold, and without, when there is one for every other packet. It wants an idle machine:
// whatever interrupts a callback counts as the callback's.
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
		for size, gso := range map[string]bool{"super-packets": true, "packets": false} {
			b.Run(a.Name+"/"+size, func(b *testing.B) {
				p.gso(gso)
				benchmarkCallbacks(b, p, a.Name)
			})
		}
	}
}

func benchmarkCallbacks(b *testing.B, p *path, name string) {
	r, err := Register(name, Options{Recorder: &notes{}, LockDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for b.Loop() {
		f := p.dial(b, name)
		if err := f.send(32<<20, nil); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	total, acks := callbackCosts(b, name)
	b.ReportMetric(total/acks, "ns/ACK")
	b.ReportMetric(acks, "ACKs")
	b.ReportMetric(0, "ns/op")
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
