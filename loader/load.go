// SPDX-License-Identifier: Apache-2.0

// Package loader brings the kernel side up and keeps it true: it creates the maps, attaches the programs to a cgroup,
// follows addresses and routes, and takes everything away again. What a kernel cannot do is switched off alone, with a
// word on why and what would help.
package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/loader/policy"
)

// Loader holds everything that lives in the kernel for one instance.
type Loader struct {
	o      Options
	log    *slog.Logger
	cgroup string               // full path of the cgroup
	maps   map[string]*ebpf.Map // by name; complete after Load
	splice spliceState          // settled by Load

	applyMu   sync.Mutex // one Apply at a time; guards the next nine
	table     *policy.Table
	peerAddrs []netip.AddrPort
	rules     ruleState
	marks     markState
	cc        ccState
	squeeze   uint32          // windows are halved so often
	pressure  pressureState   // of memory
	pacedID   uint64          // of the ledger's entry for flows that are paced; 0: none
	unraised  map[string]bool // maxima that cannot be raised, which was logged

	choices  choiceState  // has a lock of its own
	reserved reserveState // likewise
	losses   sync.Mutex   // held by the one reader of tl_loss

	insides insidesState // has a lock of its own

	inForce atomic.Pointer[policy.Table] // table, for those that cannot wait for an Apply

	destMu sync.Mutex                   // guards dests
	dests  map[netip.Prefix]destination // what tl_dest holds

	mu       sync.Mutex // guards what follows
	features []Feature
	undo     []func() error // run last to first by Close
	agent    bpf.Agent      // as in the tl_agent map
	closed   bool
}

// Load creates the maps and attaches every hook that this kernel has. It steers nothing until SetEngine. It fails only
// where nothing useful can run.
func Load(ctx context.Context, o Options) (*Loader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkCapabilities(); err != nil {
		return nil, err
	}
	cgroup, err := findCgroup("/proc/self/mountinfo", o.Cgroup)
	if err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raising the limit of locked memory: %w", err)
	}
	l := &Loader{o: o, log: o.Log, cgroup: cgroup, maps: map[string]*ebpf.Map{}, dests: map[netip.Prefix]destination{}}
	if err := l.start(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// start brings everything up in the order that leaves no gap: entries before the programs that read them.
func (l *Loader) start(ctx context.Context) error {
	if err := l.createMaps(); err != nil {
		return err
	}
	if err := l.initAgent(); err != nil {
		return err
	}
	l.releaseStale()
	l.startSplice(ctx)  // before the rules, which ask whether there is a fast path
	l.startAlgorithms() // and name algorithms
	n, err := readNetwork()
	if err != nil {
		return err
	}
	if err := l.syncDestinations(n); err != nil {
		return err
	}
	if err := l.Apply(l.o.Rules, l.o.PeerAddrs); err != nil {
		return err
	}
	// Each records its own features and degrades alone.
	for _, attach := range []func(context.Context){
		l.attachSockops,
		l.attachMarks,
		l.attachSteering,
	} {
		attach(ctx)
	}
	l.pinMaps()
	l.onClose(l.releaseAll)
	hooks := slices.DeleteFunc(l.Features(), func(f Feature) bool {
		return slices.Contains([]string{"pins", "splice", "struct-ops", "window"}, f.Name)
	})
	if !slices.ContainsFunc(hooks, func(f Feature) bool { return f.On }) {
		return fmt.Errorf("no hook could be attached: %s", hooks[0].Detail)
	}
	return nil
}

// Features returns what is on and what is not, in the order of attachment.
func (l *Loader) Features() []Feature {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.features)
}

// feature records the state of one feature, in place of an earlier one of that name.
func (l *Loader) feature(f Feature) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.features, func(g Feature) bool { return g.Name == f.Name }); i >= 0 {
		l.features[i] = f
		return
	}
	l.features = append(l.features, f)
}

// onClose has f run by Close, before everything registered earlier.
func (l *Loader) onClose(f func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.undo = append(l.undo, f)
}

// attempt runs f, and undoes what f registered if it fails: a feature is on as a whole or not at all.
func (l *Loader) attempt(f func() error) error {
	l.mu.Lock()
	before := len(l.undo)
	l.mu.Unlock()
	err := f()
	if err == nil {
		return nil
	}
	l.mu.Lock()
	undo := slices.Clone(l.undo[before:])
	l.undo = l.undo[:before]
	l.mu.Unlock()
	for _, u := range slices.Backward(undo) {
		err = errors.Join(err, u())
	}
	return err
}

// Close takes everything out of the kernel that Load put there. New connections go direct before anything else is
// touched, so that none is sent to an engine that is about to end.
func (l *Loader) Close() error {
	l.mu.Lock()
	undo, closed := l.undo, l.closed
	l.undo, l.closed = nil, true
	l.mu.Unlock()
	if closed {
		return nil
	}
	var errs []error
	if l.maps["tl_agent"] != nil {
		errs = append(errs, l.Drain())
	}
	for _, f := range slices.Backward(undo) {
		errs = append(errs, f())
	}
	for _, m := range l.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
