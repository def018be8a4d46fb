// SPDX-License-Identifier: Apache-2.0

// Package dedup is `trunkline bench dedup`: how far deduplication shrinks files and at what speed, by the experiments of the
// WANProxy paper and beside compressors of the same library. Both ends run in this process, and every byte is compared.
package dedup

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/cmd/internal/twoends"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// experiment is one run of the bench.
type experiment struct {
	settings
	session  *bench.Session
	files    []file
	specs    []codec.Spec
	seen     map[key]*found
	limits   limits
	messages map[codec.Spec]*messages
	notes    []string
	buffer   []byte // for flows, one after the other
	bench    workbench
	done     int
	all      int // jobs
}

// New is the bench for the catalogue.
func New() *bench.Bench {
	e := &experiment{seen: map[key]*found{}, messages: map[codec.Spec]*messages{}}
	return &bench.Bench{
		Name:  "dedup",
		Short: "How far deduplication shrinks files, and how fast, codec by codec",
		Long: "dedup sends files through an encoder and a decoder in this process, with every codec and second stage: a file for the first\n" +
			"time and again (the paper's experiment 1), again with 1 % or 5 % inserted (2), and with one byte in front (shift); each\n" +
			"with a history that is empty at first. wanproxy2 against wanproxy is experiment 3. Every byte that comes out is compared.\n" +
			"MB/s are 10^6 bytes a second of one core's CPU time, medians; beside them stand what the machine's memory allows\n" +
			"(memcpy, memcmp, xxhash64) and compressors of the same library, in the same run. WIRE counts payloads and frame headers.\n\n" +
			"Reads of --cut bytes are put together into blocks as the engine does for a flow that has more to send; --each makes each\n" +
			"read a block, as on an idle link. With --rate the sink drains at that rate and the governor chooses the effort, by a\n" +
			"clock that is computed and not waited for. Without --dir files of a few kinds are generated. It needs no root.",
		Example: "  trunkline bench dedup --quick\n" +
			"  trunkline bench dedup --dir corpus --seed 7 --out results\n" +
			"  trunkline bench dedup --dir corpus --codec native --stage zstd,none --cut 1460,64KiB,random\n" +
			"  trunkline bench dedup --dir corpus --codec native --rate 10Mbit --json",
		Flags: func(f *pflag.FlagSet) { e.flags(f) },
		Check: e.check,
		Run:   e.run,
	}
}

func (e *experiment) run(ctx context.Context, s *bench.Session) (_ *bench.Report, err error) {
	e.session = s
	e.defaults(s.Quick, s.Seed)
	if e.files, e.notes, err = e.corpus.load(); err != nil {
		return nil, err
	}
	for _, n := range e.notes {
		s.Progress.Notef("%s", n)
	}
	first, later := len(e.jobs(&e.files[0], e.cuts[0], true, 0)), len(e.jobs(&e.files[0], e.cuts[0], false, 0))
	e.all = len(e.files)*(first*e.runs+later*(len(e.cuts)-1)) + e.recordRuns()*len(e.specs)
	// CPU time is counted by thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// What a trip leaves is collected before the next one and not beside it: a history is as large as its file.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for begin := time.Now(); time.Since(begin) < settle; {
		_ = generate(1<<16, s.Seed)
	}
	for round := range e.runs {
		e.limits.measure(limitTimes)
		for c := range e.cuts {
			if round > 0 && c > 0 {
				break
			}
			if err := e.round(ctx, round, e.cuts[c], c == 0); err != nil {
				return nil, err
			}
		}
	}
	if err := e.small(ctx); err != nil {
		return nil, err
	}
	e.limits.measure(limitTimes)
	return e.report(), nil
}

const limitTimes = 5 // measurements of the machine a round

// round takes every file through everything once, in an order drawn anew for each file.
func (e *experiment) round(ctx context.Context, round int, c cut, first bool) error {
	for i := range e.files {
		jobs := e.jobs(&e.files[i], c, first, e.session.Seed+uint64(round))
		for _, n := range bench.Interleave(e.session.Seed+uint64(round*len(e.files)+i), 1, len(jobs))[0] {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			e.step("%s: %s, reads of %s", jobs[n].name, e.files[i].name, c.name)
			if err := jobs[n].do(); err != nil {
				return err
			}
		}
	}
	return nil
}

// step says what begins now.
func (e *experiment) step(format string, args ...any) {
	e.session.Progress.Step(e.done, e.all, format, args...)
	e.done++
}

// job is what is measured at a stretch.
type job struct {
	name string
	do   func() error
}

// jobs are those of one file: every codec with every stage, and, beside the first cut, what it is compared with.
func (e *experiment) jobs(f *file, c cut, first bool, seed uint64) []job {
	var jobs []job
	for _, s := range e.specs {
		jobs = append(jobs, job{s.String(), func() error { return e.passes(f, s, c, seed) }})
		if !first {
			continue
		}
		if s.Kind == codec.Native && s.Stage == codec.Zstd {
			jobs = append(jobs, job{s.String() + " by effort", func() error { return e.efforts(f, s, c, seed) }})
		}
		if e.rated(s) {
			jobs = append(jobs, job{s.String() + " at a rate", func() error { return e.overLink(f, s, c, seed) }})
		}
	}
	if !first {
		return jobs
	}
	for _, k := range compressors {
		jobs = append(jobs, job{k.codec, func() error {
			p, err := e.bench.whole(k, f.data)
			if err == nil {
				e.found(key{part: partWhole, file: f.name, codec: k.codec, level: k.level, pass: "first"}).add(p)
			}
			return err
		}})
	}
	return jobs
}

// trip sends files one after the other over fresh histories and notes each pass that has a key.
func (e *experiment) trip(s codec.Spec, c cut, effort codec.Effort, rate float64, seed uint64, legs ...tripLeg) error {
	// Collected here, what the trip before it left does not disturb this one, and its memory need not come from the system.
	runtime.GC()
	bound := e.history
	for _, l := range legs {
		if e.history == 0 {
			bound += historyShare * int64(len(l.data))
		}
	}
	p, err := twoends.New(max(bound, leastHistory))
	if err != nil {
		return err
	}
	for _, l := range legs {
		var over *link
		if rate > 0 {
			over = newLink(rate)
		}
		got, err := carriage{s, effort, newReads(c, e.each, seed), over}.carry(p, l.data, &e.buffer)
		if err != nil {
			return err
		}
		e.found(l.key).add(got)
	}
	return nil
}

// Histories hold leastHistory bytes and historyShare times what goes over them, unless --history says otherwise: one that is about to
// overwrite what a repeat refers to records it anew, which costs time and is not what passes are to show.
const (
	leastHistory = 64 << 20
	historyShare = 4
)

type tripLeg struct {
	key  key
	data []byte
}

// passes are the paper's experiments with one codec and file: each begins with the file as it is.
func (e *experiment) passes(f *file, s codec.Spec, c cut, seed uint64) error {
	at := func(pass string) key {
		k := e.passKey(s, c, pass)
		k.file = f.name
		return k
	}
	for _, second := range []struct {
		pass string
		make func() []byte
	}{
		{"second", func() []byte { return f.data }},
		{"mod1", func() []byte { return modified(f.data, 0.01, e.session.Seed) }},
		{"mod5", func() []byte { return modified(f.data, 0.05, e.session.Seed) }},
		{"shift", func() []byte { return shifted(f.data) }},
	} {
		if err := e.trip(s, c, e.effort, e.rate, seed, tripLeg{at("first"), f.data}, tripLeg{at(second.pass), second.make()}); err != nil {
			return err
		}
	}
	return nil
}

// efforts is a first send with each amount of work for literals.
func (e *experiment) efforts(f *file, s codec.Spec, c cut, seed uint64) error {
	for effort := codec.EffortReferences; effort < codec.Efforts; effort++ {
		k := key{part: partEffort, file: f.name, codec: s.Kind.String(), stage: s.Stage.String(), cut: c.name, effort: effort.String()}
		if err := e.trip(s, c, effort, 0, seed, tripLeg{k, f.data}); err != nil {
			return err
		}
	}
	return nil
}

// rated tells whether the first send over a slow link is measured beside the passes: where these have no link themselves.
func (e *experiment) rated(s codec.Spec) bool {
	return e.rate == 0 && s.Kind == codec.Native && s.Stage == codec.Zstd
}

// slowLink is the rate of that link in bits a second.
const slowLink = 10e6

// overLink is a first send over a slow link.
func (e *experiment) overLink(f *file, s codec.Spec, c cut, seed uint64) error {
	k := key{part: partLink, file: f.name, codec: s.Kind.String(), stage: s.Stage.String(), cut: c.name}
	return e.trip(s, c, codec.EffortDefault, slowLink, seed, tripLeg{k, f.data})
}

func (e *experiment) found(k key) *found {
	f := e.seen[k]
	if f == nil {
		f = &found{}
		e.seen[k] = f
	}
	return f
}
