// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// resetGrace is how long bytes that came before a reset have to reach the local end, as they would on one connection.
const resetGrace = time.Second

// flow is one connection of an application, at either agent: between its local socket (the application's at the near
// agent, the server's at the far one) and its leg.
//
// Four goroutines serve it: the leg's reader (receive.go) decodes and hands over to the local socket (hand.go) what that
// takes at once, deliver writes there what it does not, send (send.go) reads the local socket and writes the leg, and tell
// (tell.go) writes what must not wait behind the others: ACK, ASK, RESET. The reader never writes the leg and never waits
// for the application, so that the two ends cannot lock each other up; credit bounds what it takes in.
//
// The local socket ends in one of two ways: finish, after END in both directions and all delivered, or abort.
type flow struct {
	e           *Engine
	p           *peer
	leg         *leg
	log         *slog.Logger
	near        bool
	id          uint64
	rule        Rule
	group       string
	client      netip.AddrPort
	destination netip.AddrPort
	start       time.Time
	codec       codec.Spec
	enc         codec.Encoder
	dec         codec.Decoder
	queue       *queue
	count       counters
	encReason   atomic.Uint32 // reason.Code of the encoder
	effort      atomic.Uint32 // codec.Effort of the encoder
	active      atomic.Int64  // when a block went either way last, in Unix nanoseconds

	ctx    context.Context // ends when the flow fails
	cancel context.CancelFunc
	over   chan struct{} // closed when the flow fails
	answer chan answer   // to OPEN
	news   chan struct{} // wakes tell
	tasks  sync.WaitGroup

	finished  chan struct{} // closed when the local socket ended cleanly
	legEnd    chan struct{} // closed when nothing more comes from the leg
	readEnd   chan struct{} // closed when nothing more comes from the local socket
	sendEnd   chan struct{} // closed when send has returned
	delivered chan struct{} // closed when deliver has returned

	codecs  sync.Mutex   // held over Rest and Close of the codec
	dropped bool         // the codec is closed
	rested  atomic.Int64 // what active was when the codec began to rest

	sending sync.Mutex // held over encoding and writing: blocks go out in the encoder's order

	reading  sync.Mutex // held over a read of the local socket
	payload  bool       // something was read from the local socket, or its error: that is to be had only once, too
	detached bool       // nothing is read any more

	splice *time.Timer

	// Of the leg's reader, for hand.
	handing []byte
	handed  int
	handNow func(fd uintptr) // handSome, made once

	mu        sync.Mutex
	local     *sock
	failed    bool
	localDone bool // the local socket ended cleanly
	reset     *wire.Reset
	sender
	receiver
}

// sender is the state of the direction from the local socket to the leg, guarded by flow.mu.
type sender struct {
	credit     int64 // raw bytes that the peer takes, from the start
	sent       int64 // raw bytes sent
	starved    bool  // send waits for credit
	stopSend   bool
	endSent    bool      // END is on its way: nothing is read any more
	endOut     bool      // END was written: only now may this end of the leg be closed
	endLost    bool      // END could not be written
	resend     *wire.Ask // asked for by the peer
	delivering bool
}

// receiver is the state of the direction from the leg to the local socket, guarded by flow.mu.
type receiver struct {
	window       int64
	grown        int64 // bytes of the budget beyond the leg's
	windowAt     int64 // written when the window was last looked at
	windowTime   time.Time
	received     int64 // raw bytes decoded
	written      int64 // raw bytes that the local socket took
	granted      int64 // credit that the peer knows of
	blocks       uint64
	acked        uint64 // blocks that the peer knows of
	ackedBytes   int64
	ackTimer     *time.Timer // an ACK is due when it fires
	ackArmed     bool
	ackLate      bool      // it has fired
	ask          *wire.Ask // to be sent
	asking       *time.Timer
	answered     bool // OPENED or REFUSED came
	opened       bool
	endReceived  bool
	legEnded     bool // nothing more comes from the leg
	endDelivered bool
}

// answer is the peer's answer to OPEN.
type answer struct {
	code reason.Code // None: it is open
	text string
}

func (e *Engine) newFlow(p *peer, rule Rule, group string, spec codec.Spec, id uint64, near bool) *flow {
	f := &flow{
		e: e, p: p, near: near, rule: rule, group: group, codec: spec, id: id, start: time.Now(),
		queue: newQueue(&e.buffers), over: make(chan struct{}), answer: make(chan answer, 1), news: make(chan struct{}, 1),
		finished: make(chan struct{}), legEnd: make(chan struct{}), readEnd: make(chan struct{}),
		sendEnd: make(chan struct{}), delivered: make(chan struct{}),
	}
	f.handNow = f.handSome
	f.active.Store(f.start.UnixNano())
	f.ctx, f.cancel = context.WithCancel(e.ctx)
	f.enc = p.memory.Encoder(spec, p.group(group))
	f.dec = p.memory.Decoder(spec, group)
	f.log = e.cfg.Log.With("flow", f.id, "near", near)
	return f
}

// begin puts a flow on its leg; false if the engine is closed.
func (f *flow) begin(l *leg) bool {
	f.mu.Lock()
	f.leg = l
	f.credit = int64(min(l.hello.Credit, windowMax))
	f.window, f.granted, f.windowTime = l.window, l.window, time.Now()
	f.mu.Unlock()
	f.e.mu.Lock()
	closed := f.e.closed
	if !closed {
		f.e.flows[f.id] = f
	}
	f.e.mu.Unlock()
	if closed {
		f.drop()
		return false
	}
	f.p.flows.Add(1)
	if f.near {
		f.splice = time.AfterFunc(f.e.cfg.Timeouts.Splice, func() { f.e.cfg.Kernel.SpliceDone(f.client) })
	}
	f.tasks.Go(f.tell)
	return true
}

// drop gives back what a flow holds that did not begin.
func (f *flow) drop() {
	f.cancel()
	f.codecs.Lock()
	defer f.codecs.Unlock()
	f.dropped = true
	f.enc.Close()
	f.dec.Close()
}

func (f *flow) goSend() { f.tasks.Go(f.send) }

// goDeliver starts delivering, even if the flow has failed meanwhile: what came before that is still delivered.
func (f *flow) goDeliver() {
	f.mu.Lock()
	f.delivering = true
	f.mu.Unlock()
	f.tasks.Go(f.deliver)
}

// wait returns when the flow is over at both sockets, and gives back what it holds.
func (f *flow) wait() {
	select {
	case <-f.over:
		f.bury()
	case <-f.finished:
	}
	<-f.legEnd
	f.tasks.Wait()
	if f.splice != nil {
		f.splice.Stop()
	}
	f.drop()
	f.queue.abandon()
	f.mu.Lock()
	grown := f.grown
	f.grown = 0
	f.stopAsking()
	if f.ackTimer != nil {
		f.ackTimer.Stop()
	}
	f.mu.Unlock()
	f.e.budget.release(grown)
	f.e.reasons.add(f.reason())
	f.p.flows.Add(-1)
	f.e.mu.Lock()
	delete(f.e.flows, f.id)
	f.e.mu.Unlock()
}

// bury resets the local socket of a failed flow. What came before the failure has a moment to arrive first, as it would
// on one connection.
func (f *flow) bury() {
	f.mu.Lock()
	local, done, delivering := f.local, f.localDone, f.delivering
	f.mu.Unlock()
	if local == nil || done {
		return
	}
	if delivering {
		<-f.delivered
	}
	local.settle(resetGrace)
	local.abort()
}

// wake lets tell look for something to do.
func (f *flow) wake() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// fail ends the flow uncleanly: the local socket is reset, and the peer is told if tell is set. Only the first call counts.
// After a clean end at the local socket only the leg is given up.
func (f *flow) fail(code reason.Code, text string, tell bool) {
	f.mu.Lock()
	if f.failed {
		f.mu.Unlock()
		return
	}
	f.failed, f.stopSend = true, true
	done := f.localDone
	if tell && !done {
		f.reset = &wire.Reset{Reason: uint32(code), Text: text}
	}
	if f.local != nil && !done {
		f.e.reasons.add(code)
		f.local.SetReadDeadline(past)
		f.local.SetWriteDeadline(time.Now().Add(resetGrace))
	}
	l := f.leg
	f.mu.Unlock()
	if l != nil {
		l.hurry() // tell, which has the last word, may itself be waiting behind a peer that takes nothing
	}
	if code != reason.None && !done {
		f.e.limited.warn("a flow was reset", "peer", f.p.config().Name, "destination", f.destination, "reason", code, "cause", text)
	}
	f.queue.end()
	f.cancel()
	close(f.over)
	f.wake()
}

// finishLocal closes the local socket cleanly once both directions have ended and all is delivered.
func (f *flow) finishLocal() {
	f.mu.Lock()
	ready := f.endOut && f.endDelivered && !f.failed && !f.localDone
	if ready {
		f.localDone = true
	}
	f.mu.Unlock()
	if ready {
		f.local.finish()
		close(f.finished)
	}
}

// broke ends a flow whose local socket has an error.
func (f *flow) broke(doing string, err error) {
	f.reading.Lock()
	f.payload = true
	f.reading.Unlock()
	f.fail(reason.None, fmt.Sprintf("%s: %v", doing, err), true)
}

// detach takes the local socket out of the flow, untouched, if nothing was read from it. The flow itself is given up.
func (f *flow) detach() (*sock, bool) {
	f.reading.Lock()
	f.detached = !f.payload
	ok := f.detached
	f.reading.Unlock()
	if !ok {
		return nil, false
	}
	f.mu.Lock()
	local := f.local
	f.local, f.stopSend = nil, true
	f.mu.Unlock()
	local.SetReadDeadline(past)
	<-f.sendEnd
	local.SetDeadline(noDeadline)
	return local, true
}
