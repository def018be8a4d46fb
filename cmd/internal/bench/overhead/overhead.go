// SPDX-License-Identifier: Apache-2.0

// Package overhead is `trunkline bench overhead`: what an agent costs the host that it runs on, against the same host
// without it.
package overhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/labagent"
)

// overhead is one run of the bench and its own flags.
type overhead struct {
	rounds   int
	cell     time.Duration
	parallel int
	names    []string // of settings
	chosen   []*setting
	session  *bench.Session
	dir      string
	seen     map[string]*found // by setting
}

// New is the bench for the catalogue.
func New() *bench.Bench {
	o := &overhead{seen: map[string]*found{}}
	return &bench.Bench{
		Name:  "overhead",
		Short: "What an agent costs its host, beside the same host without one",
		Long: "overhead makes two hosts in network namespaces, joined by a veth without a rate, and runs the same loads without an\n" +
			"agent, with rules, with marks, with connections that pass every hook and go direct, and through the engine. It says\n" +
			"what a connection of one byte and a gigabyte of a stream cost in CPU time, what each BPF program took by the kernel's\n" +
			"own count, and what an agent costs that has nothing to do. CPU time is that of both hosts, clients, servers and\n" +
			"agents together. Each load runs for a time and not for a number, so slow machines need no other flags.\n\n" +
			"Every round sets each host up anew, in an order drawn by --seed. All is removed at the end, also on Ctrl-C.",
		Example: "  sudo trunkline bench overhead --quick\n" +
			"  sudo trunkline bench overhead --out results --json\n" +
			"  sudo trunkline bench overhead --rounds 15 --time 5s --parallel 1",
		NeedRoot: true,
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&o.rounds, "rounds", 0, "how often each setting is run (default 7, with --quick up to 3)")
			f.DurationVar(&o.cell, "time", 0, "how long each load runs (default 2s, with --quick 300ms)")
			f.IntVar(&o.parallel, "parallel", 4, "clients that connect at the same time")
			f.StringSliceVar(&o.names, "settings", nil, "which settings, beside none (default all: "+strings.Join(settingNames(), ", ")+")")
		},
		Check: o.check,
		Run:   o.run,
	}
}

func (o *overhead) check() error {
	switch {
	case o.rounds < 0 || o.rounds > 1000:
		return fmt.Errorf("--rounds %d must be from 1 to 1000", o.rounds)
	case o.cell < 0 || o.cell > time.Minute || o.cell > 0 && o.cell < 10*time.Millisecond:
		return fmt.Errorf("--time %v must be from 10ms to 1m", o.cell)
	case o.parallel < 1 || o.parallel > 64:
		return fmt.Errorf("--parallel %d must be from 1 to 64", o.parallel)
	}
	for _, name := range o.names {
		if !slices.Contains(settingNames(), name) {
			return fmt.Errorf("--settings: no setting is called %q; there are %s", name, strings.Join(settingNames(), ", "))
		}
	}
	return nil
}

func (o *overhead) run(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
	o.session = s
	o.defaults(s.Quick)
	for _, dir := range labagent.RemoveStale(ctx, "bench", s.Binary) {
		s.Progress.Notef("removed %s, which a killed bench left", dir)
	}
	if o.dir, err = labagent.MakeDir("bench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if s.Binary, err = labagent.CopyBinary(s.Binary, o.dir); err != nil {
		return nil, err
	}
	start := time.Now()
	for round, turn := range bench.Interleave(s.Seed, o.rounds, len(o.chosen)) {
		// A machine that is slow to set hosts up has fewer rounds in its minute.
		if took := time.Since(start); s.Quick && round > 0 && took+took/time.Duration(round) > quickTime {
			s.Progress.Notef("%d of %d rounds are enough for --quick", round, o.rounds)
			break
		}
		for i, n := range turn {
			s.Progress.Step(round*len(turn)+i, o.rounds*len(turn), "round %d of %d: %s", round+1, o.rounds, o.chosen[n].name)
			if err := o.once(ctx, o.chosen[n], round); err != nil {
				return nil, err
			}
		}
	}
	return o.report(), nil
}

// quickTime bounds what --quick takes: no round is begun that would probably not end by then.
const quickTime = 50 * time.Second

func (o *overhead) defaults(quick bool) {
	rounds, cell := 7, 2*time.Second
	if quick {
		rounds, cell = 3, 300*time.Millisecond
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.cell == 0 {
		o.cell = cell
	}
	for i := range settings {
		set := &settings[i]
		if i > 0 && len(o.names) > 0 && !slices.Contains(o.names, set.name) {
			continue
		}
		o.chosen = append(o.chosen, set)
		o.seen[set.name] = &found{set: set, programs: map[programKey]*programRuns{}}
	}
}

// once brings a setting up, measures everything in it once, and takes it down.
func (o *overhead) once(ctx context.Context, set *setting, round int) (err error) {
	f := o.seen[set.name]
	if f.off != "" {
		return nil
	}
	w := &world{setting: set, session: o.session, dir: o.dir, softirqd: softirqThreads()}
	defer func() { err = errors.Join(err, w.close()) }()
	var off errOff
	switch err := w.open(ctx); {
	case errors.As(err, &off):
		f.off = off.why
		return nil
	case err != nil:
		return err
	}
	for _, measure := range []func(context.Context, *world, *found, uint64) error{o.connect, o.bulk, o.program, o.idle} {
		if err := measure(ctx, w, f, o.session.Seed+uint64(round)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// idle is what the near agent costs while nothing happens. It comes last, for an agent that has just started is still at
// work on its legs.
func (o *overhead) idle(ctx context.Context, w *world, f *found, _ uint64) error {
	if w.near == nil {
		return nil
	}
	before, err := cpuClock(w.near.PID())
	if err != nil {
		return fmt.Errorf("reading the CPU time of the agent: %w", err)
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.cell):
	}
	after, err := cpuClock(w.near.PID())
	if err != nil {
		return fmt.Errorf("reading the CPU time of the agent: %w", err)
	}
	mb, err := residentMB(w.near.PID())
	if err != nil {
		return err
	}
	f.idleMsPerS = append(f.idleMsPerS, (after-before).Seconds()*1e3/time.Since(start).Seconds())
	f.residentMB = append(f.residentMB, mb)
	return nil
}

// connect opens connections one after the other, several at a time.
func (o *overhead) connect(ctx context.Context, w *world, f *found, seed uint64) error {
	// What the first connections find cold belongs to the start.
	if _, _, err := w.load(ctx, "connect", min(o.cell/8, 100*time.Millisecond), o.parallel, seed); err != nil {
		return err
	}
	steered, err := w.steered(ctx)
	if err != nil {
		return err
	}
	l, spent, err := w.load(ctx, "connect", o.cell, o.parallel, seed)
	if err != nil {
		return err
	}
	now, err := w.steered(ctx)
	if err != nil {
		return err
	}
	n := float64(l.Connects)
	f.connects += l.Connects
	f.failed += l.Failed
	if l.Failed > 0 {
		f.failure = l.Failure
	}
	f.steered += now - steered
	f.connectsPerS = append(f.connectsPerS, n/l.Took.Seconds())
	f.cpuUs = append(f.cpuUs, spent.cpu.Seconds()*1e6/n)
	f.agentsCPUUs = append(f.agentsCPUUs, spent.agents.Seconds()*1e6/n)
	return nil
}

// bulk sends one stream.
func (o *overhead) bulk(ctx context.Context, w *world, f *found, seed uint64) error {
	l, spent, err := w.load(ctx, "bulk", o.cell, 1, seed)
	if err != nil {
		return err
	}
	gb := float64(l.Bytes) / 1e9
	f.bytes += l.Bytes
	f.goodputMbps = append(f.goodputMbps, gb*8e3/l.Took.Seconds())
	f.cpuSPerGB = append(f.cpuSPerGB, spent.cpu.Seconds()/gb)
	f.agentsCPUSPerGB = append(f.agentsCPUSPerGB, spent.agents.Seconds()/gb)
	return nil
}

// program has the kernel count the near agent's programs under both loads. The counting costs time itself, and so has
// loads of its own; it is off again when the descriptor is closed, also by the kernel if this process dies.
func (o *overhead) program(ctx context.Context, w *world, f *found, seed uint64) (err error) {
	if w.near == nil {
		return nil
	}
	counting, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		f.uncounted = fmt.Sprintf("the kernel does not count runs of BPF programs: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, counting.Close()) }()
	for _, kind := range []string{"connect", "bulk"} {
		before, err := programs(w.near.PID())
		if err != nil {
			return err
		}
		l, spent, err := w.load(ctx, kind, o.cell/2, o.parallel, ^seed)
		if err != nil {
			return err
		}
		after, err := programs(w.near.PID())
		if err != nil {
			return err
		}
		f.addPrograms(kind, ran(before, after), l.Connects, spent.packets)
	}
	return nil
}
