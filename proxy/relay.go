// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
)

// relayDial is how long the dial of a destination may take that the peer could not be asked for.
const relayDial = 10 * time.Second

const relayBuffer = 64 << 10

// relay carries a steered connection to its destination without the peer: it came while the peer went down, and the kernel
// can no longer send it elsewhere.
type relay struct {
	e           *Engine
	id          uint64
	rule        Rule
	reason      reason.Code
	client      netip.AddrPort
	destination netip.AddrPort
	start       time.Time
	near, far   *sock
	up, down    atomic.Int64 // bytes

	mu    sync.Mutex
	ended int
	over  bool
}

func (e *Engine) relayDirect(s *sock, orig Original, code reason.Code) {
	e.reasons.add(code)
	client := s.remote()
	e.cfg.Kernel.SpliceDone(client)
	ctx, cancel := context.WithTimeout(e.ctx, relayDial)
	defer cancel()
	far, err := dialOwn(ctx, e.cfg.Kernel, orig.Destination.String(), false, setCarried)
	if err != nil {
		e.cfg.Log.Debug("dialling directly", "destination", orig.Destination, "err", err)
		e.cfg.Kernel.Bypass(orig.Destination, reason.DialFailed, e.cfg.Timeouts.Bypass)
		s.abort()
		return
	}
	rule, _ := e.route(orig)
	r := &relay{
		e: e, id: e.nextFlow.Add(1), rule: rule, reason: code, client: client, destination: orig.Destination,
		start: time.Now(), near: s, far: far,
	}
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.relays[r] = true
	}
	e.mu.Unlock()
	if closed {
		r.abort()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.copy(far, s, &r.up) })
	both.Go(func() { r.copy(s, far, &r.down) })
	both.Wait()
	e.mu.Lock()
	delete(e.relays, r)
	e.mu.Unlock()
}

// copy copies one direction. It reads and writes plainly: io.Copy would splice, which loses what a sockmap has put into the
// application's connection.
func (r *relay) copy(dst, src *sock, count *atomic.Int64) {
	buf := r.e.buffers.get(relayBuffer)
	defer r.e.buffers.put(buf)
	for read := int64(0); ; {
		n, err := src.Read(buf)
		read += int64(n)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				r.abort()
				return
			}
			count.Add(int64(n))
		}
		if errors.Is(err, io.EOF) && !src.cutOff(read) {
			break
		}
		if err != nil {
			dst.settle(resetGrace)
			r.abort()
			return
		}
	}
	if r.half() {
		return
	}
	if dst.CloseWrite() != nil || src.watch() != nil {
		r.abort() // does nothing if the other direction ended meanwhile
	}
}

// half ends one direction; true if it was the second, and all is closed.
func (r *relay) half() bool {
	r.mu.Lock()
	r.ended++
	last := r.ended == 2 && !r.over
	if last {
		r.over = true
	}
	r.mu.Unlock()
	if last {
		r.near.finish()
		r.far.finish()
	}
	return last
}

func (r *relay) abort() {
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.mu.Unlock()
	if first {
		r.near.abort()
		r.far.abort()
	}
}
