// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/outlive"
	"github.com/trunkline/trunkline/proxy/dedup/wanproxy"
	"github.com/trunkline/trunkline/proxy/history"
	"github.com/trunkline/trunkline/proxy/wire"
)

var errDraining = errors.New("the agent is draining")

// Engine carries steered connections to peers, and the peers' to servers.
type Engine struct {
	cfg       Config
	limited   *limitedLog
	buffers   buffers
	budget    budget
	gate      *gate
	host      hostAddrs
	serverTLS *tls.Config
	protocol  uint64 // major version
	listeners []*listener
	last      outlive.Hold // of those that steered connections come to
	settle    sync.Once
	draining  atomic.Bool
	arrivals  arrivals
	nextFlow  atomic.Uint64
	reasons   reasonCounts
	store     *history.Store
	run       uint64 // a number of this engine's own
	segments  *wanproxy.Store

	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	rules   map[uint32]Rule
	ruleFor RuleFor
	peers   []*peer
	flows   map[uint64]*flow
	relays  map[*relay]bool
	legs    map[*leg]bool // that peers dialled
	running bool

	work   sync.Mutex // guards ending, and that wg does not grow after it
	ending bool
	wg     sync.WaitGroup
}

// New makes an engine and opens its listeners, so that the kernel side can be told their ports. Nothing is accepted before Run.
func New(cfg Config) (*Engine, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, limited: newLimitedLog(cfg.Log), gate: newGate(), protocol: wire.Major,
		budget: budget{total: cfg.BufferBytes},
		run:    rand.Uint64() | 1,
		flows:  map[uint64]*flow{}, relays: map[*relay]bool{}, legs: map[*leg]bool{},
	}
	var err error
	e.segments = wanproxy.NewStore(cfg.HistoryBytes)
	e.store, err = history.Open(history.Options{MemoryBytes: cfg.HistoryBytes, DiskBytes: cfg.HistoryDisk, Directory: cfg.HistoryDir, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.serverTLS = cfg.Identity.tlsConfig(func(key ed25519.PublicKey) bool { return e.peerByKey(key) != nil })
	if err := e.Reconfigure(cfg.Peers, cfg.Rules, cfg.RuleFor); err != nil {
		return nil, errors.Join(err, e.store.Close())
	}
	if err := e.listen(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.holdOn()
	return e, nil
}

// Run works until ctx ends, then closes the engine.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	if e.closed || e.running {
		e.mu.Unlock()
		return errors.New("engine is closed or runs already")
	}
	e.running = true
	for _, l := range e.listeners {
		l.stamp()
		e.wg.Go(func() { e.accept(l) })
	}
	peers := slices.Clone(e.peers)
	e.wg.Go(func() { e.restFlows(e.ctx) })
	e.mu.Unlock()
	for _, p := range peers {
		p.start(e.ctx)
	}
	select {
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
	return e.Close()
}

// startWork counts a goroutine in that Close waits for; false if the engine is closed.
func (e *Engine) startWork() bool {
	e.work.Lock()
	defer e.work.Unlock()
	if e.ending {
		return false
	}
	e.wg.Add(1)
	return true
}

// Reconfigure takes other peers and rules for new flows. A peer whose address is the same keeps its connections, one
// whose key is the same its histories. It also ends a drain.
func (e *Engine) Reconfigure(peers []Peer, rules []Rule, ruleFor RuleFor) error {
	if err := checkPeers(peers); err != nil {
		return err
	}
	var started, stopped []*peer
	e.mu.Lock()
	old := e.peers
	e.peers = nil
	for _, cfg := range peers {
		key, _ := parseKey(cfg.Key)
		i := slices.IndexFunc(old, func(p *peer) bool { return p.key.Equal(key) })
		if i < 0 {
			p := e.newPeer(cfg, key)
			started = append(started, p)
			e.peers = append(e.peers, p)
			continue
		}
		p := old[i]
		old = slices.Delete(slices.Clone(old), i, i+1)
		e.peers = append(e.peers, p)
		if before := p.config(); before.Address != cfg.Address || before.ID != cfg.ID {
			stopped, started = append(stopped, p), append(started, p)
			continue
		}
		p.change(cfg)
	}
	stopped = append(stopped, old...)
	e.rules = map[uint32]Rule{}
	for _, r := range rules {
		e.rules[r.ID] = r
	}
	e.ruleFor = ruleFor
	running := e.running
	e.mu.Unlock()
	for _, p := range stopped {
		p.stop()
	}
	for _, p := range old {
		e.expel(p)
	}
	for _, p := range started {
		i := slices.IndexFunc(peers, func(c Peer) bool { k, _ := parseKey(c.Key); return p.key.Equal(k) })
		p.change(peers[i])
		if running {
			p.start(e.ctx)
		}
	}
	e.mu.Lock()
	for _, p := range e.peers {
		p.wantWindows(rules)
	}
	e.mu.Unlock()
	e.draining.Store(false)
	e.warnUnreachable(peers, rules)
	return nil
}

func (p *peer) change(cfg Peer) {
	p.mu.Lock()
	p.cfg = cfg
	p.mu.Unlock()
}

// warnUnreachable names rules whose flows have nowhere to go.
func (e *Engine) warnUnreachable(peers []Peer, rules []Rule) {
	for _, r := range rules {
		if r.PeerID == 0 {
			continue
		}
		i := slices.IndexFunc(peers, func(p Peer) bool { return p.ID == r.PeerID })
		if i < 0 || peers[i].Address == "" {
			e.cfg.Log.Warn("the rule's peer has no address, so its connections go direct: give the peer one", "rule", r.Name)
		}
	}
}

func (e *Engine) peerByKey(key ed25519.PublicKey) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if p.key.Equal(key) {
			return p
		}
	}
	return nil
}

// route finds the rule and the peer of a steered connection; no peer: it has to go direct.
func (e *Engine) route(o Original) (Rule, *peer) {
	e.mu.Lock()
	rule, ok := e.rules[o.RuleID]
	ruleFor, peers := e.ruleFor, e.peers
	e.mu.Unlock()
	if ruleFor != nil {
		rule, ok = ruleFor(o.Destination.Addr(), o.Destination.Port())
	}
	if !ok || rule.PeerID == 0 {
		return rule, nil
	}
	for _, p := range peers {
		if p.config().ID == rule.PeerID {
			return rule, p
		}
	}
	return rule, nil
}

// ruleOf finds this end's own rule for a flow that a peer opened.
func (e *Engine) ruleOf(remote netip.Addr, port uint16) Rule {
	e.mu.Lock()
	ruleFor := e.ruleFor
	e.mu.Unlock()
	if ruleFor == nil || !remote.IsValid() {
		return Rule{}
	}
	rule, _ := ruleFor(remote, port)
	return rule
}

// lateAfter is how long after the end of steering a connection may still arrive whose connect() was steered before, and
// was then kept waiting for a CPU.
const lateAfter = 100 * time.Millisecond

// Drain lets the flows finish and takes no more from peers; what the kernel had steered before is carried. It returns when
// no flow is left, or ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.draining.Store(true)
	e.mu.Lock()
	for l := range e.legs {
		if _, ok := l.current().(*ponger); ok {
			l.close() // the peer sees it and lets its connections go direct
		}
	}
	e.mu.Unlock()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for began := time.Now(); ; {
		n := e.live()
		if n == 0 && time.Since(began) > lateAfter {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("draining: %d flows are left: %w", n, ctx.Err())
		case <-e.ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

func (e *Engine) live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.flows) + len(e.relays)
}

// Close ends everything: flows that are left are reset. Nothing is to be steered any more: in the first 10 ms to 100 ms
// those are still taken in that had been.
func (e *Engine) Close() error {
	e.settle.Do(e.last.Release)
	e.mu.Lock()
	already := e.closed
	e.closed = true
	peers, flows := slices.Clone(e.peers), slices.Collect(maps.Values(e.flows))
	legs, relays := slices.Collect(maps.Keys(e.legs)), slices.Collect(maps.Keys(e.relays))
	e.mu.Unlock()
	e.work.Lock()
	e.ending = true
	e.work.Unlock()
	e.cancel()
	if !already {
		for _, l := range e.listeners {
			l.Close()
		}
		for _, p := range peers {
			p.stop()
		}
		for _, f := range flows {
			f.fail(reason.Draining, "the agent ends", true)
		}
		for _, r := range relays {
			r.abort()
		}
		for _, l := range legs {
			if _, ok := l.current().(*flow); !ok {
				l.close()
			}
		}
	}
	e.wg.Wait()
	return e.store.Close()
}

// track keeps an accepted leg within reach of Close and of whoever takes its peer out of the configuration, which may just
// have happened.
func (e *Engine) track(l *leg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.legs[l] = true
	if e.closed || !slices.Contains(e.peers, l.peer) {
		l.close()
	}
}

// expel closes what a peer dialled that is not in the configuration any more, or has another key there: with its key it has
// lost its access. Flows that go out through the peer may finish.
func (e *Engine) expel(p *peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.legs {
		if l.peer == p {
			l.close()
		}
	}
}

func (e *Engine) untrack(l *leg) {
	e.mu.Lock()
	delete(e.legs, l)
	e.mu.Unlock()
}
