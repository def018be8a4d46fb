// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// maxGroups bounds the history groups that a peer can make us keep: their names are the peer's to choose.
const maxGroups = 64

// counters are bytes that went over legs, raw and as frames.
type counters struct {
	rawSent, wireSent, rawReceived, wireReceived atomic.Int64
}

// peer is another agent as this one knows it. Its key is what it is; all else may change with the configuration.
type peer struct {
	e        *Engine
	key      ed25519.PublicKey
	memory   *dedup.Memory
	total    counters
	flows    atomic.Int64 // live, either way
	opened   atomic.Uint64
	accepted atomic.Uint64
	dials    chan struct{}
	dialled  dials // flows that the peer opened

	mu       sync.Mutex
	cfg      Peer
	cancel   context.CancelFunc // of what dials the peer; nil: nothing does
	control  *leg               // dialled by us and answering
	inbound  int                // control connections that the peer dialled
	legs     int                // other connections that it dialled
	where    netip.AddrPort     // of the peer's listener, as far as known
	ports    []uint16           // the peer's listeners, from its HELLO
	features uint64             // likewise
	up       bool
	since    time.Time // of the last change of up
	rtt      time.Duration
	ponged   time.Time // when the peer answered a ping last
	version  string
	reason   reason.Code
	problem  string
	idle     []*leg
	filling  map[uint32]int  // legs being dialled for idle, by their windows
	windows  map[uint32]bool // that rules want of legs to the peer
	groups   map[string]bool

	wg sync.WaitGroup
}

func (e *Engine) newPeer(cfg Peer, key ed25519.PublicKey) *peer {
	return &peer{
		e: e, key: key, cfg: cfg, since: time.Now(), groups: map[string]bool{}, filling: map[uint32]int{},
		memory: dedup.NewMemory(e.store, e.segments, key), dials: make(chan struct{}, maxDials),
	}
}

func (p *peer) config() Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg
}

func (p *peer) log() *slog.Logger { return p.e.cfg.Log.With("peer", p.config().Name) }

// start dials the peer, where its address is known, until stop. The peer is down at first.
func (p *peer) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	p.cancel = cancel
	cfg := p.cfg
	p.reason = reason.PeerDown
	p.mu.Unlock()
	p.e.cfg.Kernel.SetPeer(cfg.ID, false)
	if cfg.Address != "" {
		p.wg.Go(func() { p.keepControl(ctx) })
	}
}

// stop ends what start began. Flows go on.
func (p *peer) stop() {
	p.mu.Lock()
	cancel := p.cancel
	p.cancel = nil
	p.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	p.setDown(reason.PeerDown, "no longer dialled")
	p.wg.Wait()
}

// met notes what a peer's HELLO says.
func (p *peer) met(h wire.Hello) {
	p.memory.SetPeer(h.Epoch, h.Run, int64(min(h.HistoryBytes, 1<<62)))
	p.mu.Lock()
	p.version = fmt.Sprintf("%d.%d", h.Major, h.Minor)
	p.ports, p.features = h.Ports, h.Features
	p.mu.Unlock()
}

// setUp marks the peer up over a control connection.
func (p *peer) setUp(l *leg) {
	p.mu.Lock()
	was := p.up
	p.up, p.control, p.reason, p.problem = true, l, reason.None, ""
	p.where = l.sock.remote()
	if !was {
		p.since = time.Now()
	}
	cfg := p.cfg
	p.mu.Unlock()
	p.e.cfg.Kernel.SetPeer(cfg.ID, true)
	if !was {
		p.e.cfg.Log.Info("peer is up", "peer", cfg.Name, "address", cfg.Address)
	}
}

// setDown marks the peer down and drops its idle legs: connections go direct until it is back.
func (p *peer) setDown(r reason.Code, problem string) {
	p.mu.Lock()
	was, news := p.up, p.problem != problem
	control, idle := p.control, p.idle
	p.up, p.control, p.idle, p.reason, p.problem = false, nil, nil, r, problem
	if was {
		p.since = time.Now()
	}
	cfg, dialled := p.cfg, p.cancel != nil
	p.mu.Unlock()
	p.e.cfg.Kernel.SetPeer(cfg.ID, false)
	if control != nil {
		control.close()
	}
	for _, l := range idle {
		l.close()
	}
	if (was || news) && dialled {
		p.e.cfg.Log.Warn("peer is down, its connections go direct", "peer", cfg.Name, "address", cfg.Address, "reason", r, "cause", problem)
	}
}

// suspect takes the peer for down after something that began at a time went wrong; the control connection is dialled anew
// to see. If that has been done since, it says nothing.
func (p *peer) suspect(begun time.Time, err error) {
	p.mu.Lock()
	old := p.up && begun.Before(p.since)
	p.mu.Unlock()
	if !old {
		p.setDown(p.explain(err)) // without ports, so that the log does not repeat itself
	}
}

// keepControl holds a control connection to the peer.
func (p *peer) keepControl(ctx context.Context) {
	pause := p.e.cfg.Timeouts.Redial / 16
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.runControl(ctx)
		if ctx.Err() != nil {
			return
		}
		p.setDown(p.explain(err))
		if time.Since(begun) > 2*p.e.cfg.Timeouts.Pong {
			pause = p.e.cfg.Timeouts.Redial / 16
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, p.e.cfg.Timeouts.Redial)
	}
}

// explain turns an error of a control connection into what a person needs to know.
func (p *peer) explain(err error) (reason.Code, string) {
	var version *wire.VersionError
	var key *keyError
	switch {
	case errors.As(err, &version):
		return reason.Incompatible, err.Error() + ": install the same version of trunkline at both ends"
	case errors.As(err, &key):
		return reason.PeerDown, fmt.Sprintf("%v: it has %s; if that is the peer's new key, write it into the configuration",
			p.config().Address, fingerprint(key.key))
	case strings.Contains(err.Error(), "remote error: tls"):
		return reason.PeerDown, fmt.Sprintf("the peer does not accept this agent's key: write %s into its configuration",
			p.e.cfg.Identity.Fingerprint())
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return reason.PeerDown, op.Op + ": " + op.Err.Error() // without the port, which differs each time
	}
	return reason.PeerDown, err.Error()
}

// runControl dials a control connection and pings over it until it breaks or the peer is silent.
func (p *peer) runControl(ctx context.Context) error {
	l, err := p.dialLeg(ctx, wire.KindControl, 0)
	if err != nil {
		return err
	}
	defer l.close()
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	p.met(l.hello)
	c := &pinger{agreement: newAgreement(p), pong: time.Now(), broken: make(chan error, 1)}
	l.take(c)
	p.wg.Go(l.run)
	if err := c.agree(l); err != nil {
		return err
	}
	c.alive()
	p.setUp(l)
	ticks := time.NewTicker(p.e.cfg.Timeouts.Ping)
	defer ticks.Stop()
	for n := uint64(1); ; n++ {
		if err := c.ping(l, n); err != nil {
			return err
		}
		p.tend()
		select {
		case err := <-c.broken:
			return fmt.Errorf("control connection ended: %w", err)
		case <-p.memory.Receivers.News():
			if err := p.tellLacks(l); err != nil {
				return err
			}
		case <-ticks.C:
		}
		if silence := c.silence(); silence > p.e.cfg.Timeouts.Pong {
			return fmt.Errorf("no answer to pings for %v", silence.Round(100*time.Millisecond))
		}
	}
}

// pinger is the dialling end of a control connection.
type pinger struct {
	agreement
	broken chan error

	mu    sync.Mutex
	nonce uint64
	sent  time.Time
	pong  time.Time
}

func (c *pinger) ping(l *leg, nonce uint64) error {
	c.mu.Lock()
	if c.nonce == 0 || c.pong.After(c.sent) {
		c.nonce, c.sent = nonce, time.Now() // else the last one is still under way, and its round trip not over
	}
	nonce = c.nonce
	c.mu.Unlock()
	l.sock.SetWriteDeadline(time.Now().Add(c.p.e.cfg.Timeouts.Pong))
	m := wire.Ping{Nonce: nonce}
	return l.send(wire.TypePing, m.Append(nil))
}

// alive counts a sign of life that is no pong.
func (c *pinger) alive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pong = time.Now()
}

func (c *pinger) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.pong)
}

func (c *pinger) frame(t wire.Type, payload []byte) error {
	if t == wire.TypeRanges {
		_, err := c.take(payload)
		return err
	}
	if t != wire.TypePong {
		return fmt.Errorf("%w: %v on a control connection", wire.ErrMalformed, t)
	}
	m, err := wire.ParsePing(payload)
	if err != nil {
		return err
	}
	now := time.Now()
	c.mu.Lock()
	fresh := m.Nonce == c.nonce && c.pong.Before(c.sent)
	rtt := now.Sub(c.sent)
	c.pong = now
	c.mu.Unlock()
	c.p.answered(now, fresh, rtt)
	return nil
}

// answered takes note of a pong, and of its round trip if that is not one that an earlier pong had measured.
func (p *peer) answered(now time.Time, fresh bool, rtt time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ponged = now
	if !fresh {
		return
	}
	if p.rtt == 0 {
		p.rtt = rtt
	}
	p.rtt += (rtt - p.rtt) / 8
}

// alive tells whether the peer has answered a ping lately. A peer that dials us and is not dialled is not asked.
func (p *peer) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.up && time.Since(p.ponged) < p.e.cfg.Timeouts.Pong
}

func (c *pinger) closed(err error) { c.broken <- err }

// agree gives the codec for a rule's flows: the rule's, where the peer has that.
func (p *peer) agree(rule Rule) codec.Spec {
	p.mu.Lock()
	features := p.features
	p.mu.Unlock()
	use, agreed := dedup.Agree(rule.Codec, features)
	if !agreed {
		p.e.limited.warn("the peer does not have the rule's codec, its flows have another: install the same version of trunkline at both ends",
			"peer", p.config().Name, "rule", rule.Name, "codec", rule.Codec, "instead", use)
	}
	return use
}

// group returns the name of a history group to send through; empty: none, or there are too many.
func (p *peer) group(name string) string {
	p.mu.Lock()
	known := p.groups[name]
	if !known && len(p.groups) < maxGroups {
		p.groups[name], known = true, true
	}
	p.mu.Unlock()
	if !known {
		return ""
	}
	return name
}

// incompatible notes that a peer that connected speaks another version.
func (p *peer) incompatible(v *wire.VersionError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		p.version, p.reason = fmt.Sprintf("%d.%d", v.Major, v.Minor), reason.Incompatible
	}
}
