// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/wire"
)

// errBusy is a peer without room for another flow.
var errBusy = errors.New("no room for another flow")

// handler gets what arrives on a leg, from one goroutine. Payloads are valid until frame returns.
type handler interface {
	frame(t wire.Type, payload []byte) error
	closed(err error)
}

// leg is a connection between two agents: TLS on a kernel TCP connection. It carries one flow, or the pings.
type leg struct {
	e       *Engine
	peer    *peer
	sock    *sock
	below   *coalescer
	tls     *tls.Conn
	r       *bufio.Reader
	hello   wire.Hello // the other end's
	window  int64      // what this end granted in its HELLO, taken from the budget
	created time.Time
	rcvbuf  uint32 // its fixed receive window in bytes; 0: none

	writing sync.Mutex // one frame after the other

	mu      sync.Mutex
	handler handler // nil: idle
	dead    bool
	once    sync.Once
}

// dialLeg connects to a peer. A fixed receive window (bytes; 0: none) is set before the SYN.
func (p *peer) dialLeg(ctx context.Context, kind uint64, rcvbuf uint32) (*leg, error) {
	ctx, cancel := context.WithTimeout(ctx, p.e.cfg.Timeouts.Leg)
	defer cancel()
	address := p.config().Address
	s, err := dialOwn(ctx, p.e.cfg.Kernel, address, true, func(fd int) error {
		if err := setLeg(fd); err != nil || rcvbuf == 0 {
			return err
		}
		return setRcvbuf(fd, int(min(rcvbuf, 1<<30)))
	})
	if err != nil {
		return nil, err
	}
	l := p.e.newLeg(s)
	l.tls = tls.Client(l.below, p.e.cfg.Identity.clientTLS(p.key))
	l.r.Reset(l.tls)
	l.peer, l.rcvbuf = p, rcvbuf
	if err := l.greet(ctx, kind); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (e *Engine) newLeg(s *sock) *leg {
	return &leg{e: e, sock: s, below: newCoalescer(s, &e.buffers), r: bufio.NewReader(nil), created: time.Now()}
}

// greet does the dialling end's handshakes.
func (l *leg) greet(ctx context.Context, kind uint64) error {
	deadline, _ := ctx.Deadline()
	l.sock.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { l.sock.SetDeadline(past) })
	defer stop()
	if err := l.shake(ctx); err != nil {
		return err
	}
	if err := l.sendHello(kind); err != nil {
		return err
	}
	hello, err := l.readHello()
	if err != nil {
		return err
	}
	if hello.Kind != kind {
		return fmt.Errorf("%w: HELLO of kind %d", wire.ErrMalformed, hello.Kind)
	}
	if kind == wire.KindLeg && (hello.Credit == 0 || l.window == 0) {
		return errBusy
	}
	if !stop() {
		return ctx.Err()
	}
	l.sock.SetDeadline(noDeadline)
	return nil
}

func (l *leg) sendHello(kind uint64) error {
	m := wire.Hello{
		Major: l.e.protocol, Minor: wire.Minor, Features: dedup.Features(), Kind: kind, Instance: l.e.cfg.Instance,
		Ports: l.e.listenPorts(),
	}
	if l.peer != nil {
		m.Run = l.e.run
		m.Epoch, m.HistoryBytes = l.peer.memory.Receivers.Epoch(), uint64(l.peer.memory.Receivers.Bound())
	}
	if kind == wire.KindLeg {
		l.window = l.e.budget.open()
		m.Credit = uint64(l.window)
	}
	return l.send(wire.TypeHello, m.Append(nil))
}

// readHello reads the other end's HELLO and tells the peer's histories.
func (l *leg) readHello() (wire.Hello, error) {
	t, payload, err := wire.ReadFrame(l.r, nil)
	if err != nil {
		return wire.Hello{}, fmt.Errorf("waiting for HELLO: %w", err)
	}
	if t != wire.TypeHello {
		return wire.Hello{}, fmt.Errorf("%w: %v instead of HELLO", wire.ErrMalformed, t)
	}
	l.hello, err = wire.ParseHello(payload)
	if err == nil && l.hello.Major != l.e.protocol {
		err = &wire.VersionError{Major: l.hello.Major, Minor: l.hello.Minor}
	}
	return l.hello, err
}

// send writes one frame.
func (l *leg) send(t wire.Type, payload []byte) error {
	return l.write(wire.AppendFrame(make([]byte, 0, len(payload)+8), t, payload))
}

// write writes whole frames.
func (l *leg) write(frames []byte) error {
	_, err := l.writeTimed(frames)
	return err
}

// writeTimed is write, and tells for how long the link took nothing.
func (l *leg) writeTimed(frames []byte) (waited time.Duration, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.below.collect(len(frames))
	_, err = l.tls.Write(frames)
	waited, flushed := l.below.flush()
	return waited, errors.Join(err, flushed)
}

// take gives an idle leg to a handler; false if the leg died meanwhile.
func (l *leg) take(h handler) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.handler != nil {
		return false
	}
	l.handler = h
	return true
}

func (l *leg) current() handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handler
}

// run reads frames until the leg ends. An idle leg is read as well: that is how its end is noticed.
func (l *leg) run() {
	err := l.readFrames()
	l.mu.Lock()
	l.dead = true
	h := l.handler
	l.mu.Unlock()
	if h != nil {
		h.closed(err)
	}
	l.close()
}

func (l *leg) readFrames() error {
	for {
		t, n, err := wire.ReadHeader(l.r)
		if err != nil {
			return err
		}
		h := l.current()
		if h == nil {
			return fmt.Errorf("%w: %v on an idle leg", wire.ErrMalformed, t)
		}
		buf := l.e.buffers.get(n)
		if _, err = io.ReadFull(l.r, buf); err == nil {
			err = h.frame(t, buf)
		}
		l.e.buffers.put(buf)
		if err != nil {
			return err
		}
	}
}

// shut ends this end's direction and gives the other end a while to end its own. To close at once could destroy, by a
// reset, what the other end has not read yet.
func (l *leg) shut() {
	l.hurry()
	l.tls.CloseWrite()
	l.sock.CloseWrite()
}

// hurry gives everything on the leg a time limit: the flow is over but for formalities.
func (l *leg) hurry() { l.sock.SetDeadline(time.Now().Add(l.grace())) }

// grace is how long formalities may take: not long where the engine ends.
func (l *leg) grace() time.Duration {
	if l.e.ctx.Err() != nil {
		return min(l.e.cfg.Timeouts.Finish, time.Second)
	}
	return l.e.cfg.Timeouts.Finish
}

// expire gives the reader of a leg that can no longer be written a time limit.
func (l *leg) expire() { l.sock.SetReadDeadline(time.Now().Add(l.grace())) }

func (l *leg) close() {
	l.once.Do(func() {
		l.sock.close()
		l.e.budget.release(l.window)
	})
}
