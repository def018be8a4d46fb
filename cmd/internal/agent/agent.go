// SPDX-License-Identifier: Apache-2.0

// Package agent joins the parts into the daemon: configuration, ledger, the kernel side, the engine, and the control
// socket. It decides in which order they come and go, and nothing else.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/trunkline/trunkline/cc/choice"
	"github.com/trunkline/trunkline/cmd/internal/config"
	"github.com/trunkline/trunkline/cmd/internal/control"
	"github.com/trunkline/trunkline/cmd/internal/hostcheck"
	"github.com/trunkline/trunkline/loader"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/proxy"
)

// drainTime is what flows get to finish after SIGTERM.
const drainTime = 30 * time.Second

// Options are what is not in the configuration.
type Options struct {
	Version string
	Kernel  string // release of the running kernel
	Log     *slog.Logger
}

// agent is the running whole.
type agent struct {
	o       Options
	log     *slog.Logger
	started time.Time
	ledger  *ledger.Ledger
	loader  *loader.Loader
	engine  *proxy.Engine
	control *control.Listener
	names   names
	auto    auto
	granted granted // reservations; locks of its own

	mu       sync.Mutex // one change at a time; guards what follows
	config   *config.Config
	loaded   time.Time
	table    *policy.Table
	addrs    []netip.AddrPort // of the peers, as resolved last
	draining bool
	ending   bool // a signal has ended the agent: nothing takes the drain back
}

// Run brings everything up, works until a signal or a fatal error, and takes everything down again.
func Run(ctx context.Context, c *config.Config, o Options) error {
	a := &agent{o: o, log: o.Log.With("instance", c.Instance), started: time.Now(), config: c, loaded: time.Now()}
	signals := catchSignals()
	defer signals.stop()
	if err := a.start(ctx); err != nil {
		return errors.Join(err, a.close())
	}
	err := a.work(ctx, signals)
	return errors.Join(err, a.close())
}

// start goes from what fails earliest and cheapest to what carries traffic. Each part stays with a for close.
func (a *agent) start(ctx context.Context) error {
	c := a.config
	if errs := loader.Preflight(c.Cgroup); len(errs) > 0 {
		return errs[0]
	}
	if err := a.openLedger(); err != nil {
		return err
	}
	candidates := candidatesFor(c)
	a.warn(c, candidates)
	table, err := a.build(c, candidates)
	if err != nil {
		return err
	}
	a.table, a.addrs = table, a.resolvePeers(ctx, c)
	a.auto.candidates, a.auto.chooser, a.auto.written = candidates, choice.New(chooserOptions(c, candidates)), true
	a.loader, err = loader.Load(ctx, loader.Options{
		Instance: c.Instance, Cgroup: c.Cgroup, BPFFS: c.BPFFS, Interfaces: c.Interfaces, DSCP: c.DSCP, MarkBit: c.MarkBit,
		Ledger: a.ledger, Log: a.log, Rules: table.Rules(), PeerAddrs: a.addrs, Candidates: offered(c, candidates),
	})
	if err != nil {
		return err
	}
	a.startAuto()
	a.startReservations()
	a.logFeatures(table)
	if err := a.startEngine(table); err != nil {
		return err
	}
	return a.listen()
}

// listen opens the control socket. It and the directories made for it are written down, since a killed agent leaves them.
// What is another agent's is not: its socket answers before anything is written.
func (a *agent) listen() error {
	path := a.config.Socket()
	if err := control.Vacant(path); err != nil {
		return err
	}
	var entries []ledger.Entry
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		entries = append(entries, ledger.Entry{Kind: ledger.Dir, Target: dir})
	}
	slices.Reverse(entries)
	for _, e := range append(entries, ledger.Entry{Kind: ledger.File, Target: path}) {
		if _, err := a.ledger.Record(e); err != nil {
			return err
		}
	}
	var err error
	a.control, err = control.Listen(path, a.config.Group)
	return err
}

func (a *agent) openLedger() error {
	l, err := ledger.Open(a.config.Ledger())
	if errors.Is(err, ledger.ErrInUse) {
		return fmt.Errorf("another agent of instance %s runs and holds %s; stop it first, or give this one another instance or state_dir",
			a.config.Instance, a.config.Ledger())
	}
	if err != nil {
		return err
	}
	a.ledger = l
	// What a killed predecessor left is undone first: from here on the ledger is this agent's alone.
	results, err := l.Undo(slog.New(slog.DiscardHandler))
	for _, r := range results {
		a.log.Info("undone what an agent that was killed had left", "kind", r.Entry.Kind, "target", r.Entry.Target,
			"outcome", r.Outcome, "detail", r.Detail)
	}
	if err != nil {
		a.log.Warn("not everything that an agent left could be undone; see trunkline cleanup", "err", err)
	}
	return nil
}

// logFeatures says what is off: loudly if a rule needs it.
func (a *agent) logFeatures(t *policy.Table) {
	needs := needed(t)
	for _, f := range a.loader.Features() {
		level := slog.LevelInfo
		if needs[f.Name] {
			level = slog.LevelWarn
		}
		if !f.On {
			a.log.Log(context.Background(), level, "feature is off", "feature", f.Name, "why", f.Detail, "remedy", f.Remedy)
		}
	}
}

func (a *agent) startEngine(table *policy.Table) error {
	c := a.config
	id, err := proxy.LoadOrCreateIdentity(c.Key)
	if err != nil {
		return err
	}
	listen := ""
	if c.Listen.IsValid() {
		listen = c.Listen.String()
	}
	a.engine, err = proxy.New(proxy.Config{
		Instance: c.Instance, Identity: id, Listen: listen, Peers: a.enginePeers(c), Rules: engineRules(table),
		RuleFor: ruleFor(table), Kernel: kernel{a.loader}, Log: a.log,
		HistoryBytes: c.History.MemoryBytes, HistoryDisk: c.History.DiskBytes, HistoryDir: c.History.Directory,
	})
	return err
}

// warn logs what is accepted but hardly meant.
func (a *agent) warn(c *config.Config, candidates []hostcheck.Candidate) {
	for _, w := range c.Warnings {
		a.log.Warn("configuration", "problem", w.Error())
	}
	if w := outside(c, ownCgroup()); w != "" {
		a.log.Warn(w)
	}
	for _, m := range hostcheck.MissingCongestion(c.Rules) {
		a.log.Warn("congestion control is not available; flows keep the kernel's default", "name", m.Name, "rules", m.Rules,
			"remedy", m.Remedy)
	}
	for _, one := range candidates {
		if !one.Usable() {
			a.log.Warn("a candidate of congestion: auto is left out", "name", one.Name, "why", one.Why, "remedy", one.Remedy)
		}
	}
}

// steer tells the kernel side where the engine is: from now on connections come.
func (a *agent) steer() error {
	port4, port6, peer := a.engine.Ports()
	return a.loader.SetEngine(loader.Engine{Port4: port4, Port6: port6, PeerPort: peer})
}

// close takes down what start got to, the newest first. New connections went direct before: work has drained.
func (a *agent) close() error {
	var errs []error
	if a.control != nil {
		a.control.Close()
	}
	if a.loader != nil {
		errs = append(errs, a.loader.Drain())
	}
	if a.engine != nil {
		errs = append(errs, a.engine.Close())
	}
	if a.loader != nil {
		a.saveChoices() // of the last flows, too
		errs = append(errs, a.auto.memory.close(), a.loader.Close(), a.granted.close())
	}
	if a.ledger != nil {
		results, err := a.ledger.Undo(slog.New(slog.DiscardHandler))
		for _, r := range results {
			if r.Outcome == ledger.Left {
				a.log.Warn("left alone", "kind", r.Entry.Kind, "target", r.Entry.Target, "why", r.Detail)
			}
		}
		errs = append(errs, err, a.ledger.Close())
	}
	return errors.Join(errs...)
}
