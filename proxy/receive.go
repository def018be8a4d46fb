// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// frame takes a frame from the leg. It never waits, and never writes to the leg. What breaks the protocol fails the flow; the leg is
// still read to its end, so that the RESET gets out.
func (f *flow) frame(t wire.Type, payload []byte) error {
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	if failed {
		return nil
	}
	if err := f.take(t, payload); err != nil {
		f.fail(reason.LegFailed, err.Error(), true)
	}
	return nil
}

func (f *flow) take(t wire.Type, payload []byte) error {
	switch t {
	case wire.TypeData:
		return f.takeData(payload)
	case wire.TypeAck:
		m, err := wire.ParseAck(payload)
		if err == nil {
			f.takeAck(m)
		}
		return err
	case wire.TypeAsk:
		m, err := wire.ParseAsk(payload)
		f.mu.Lock()
		f.resend = &m
		f.mu.Unlock()
		f.wake()
		return err
	case wire.TypeEnd:
		m, err := wire.ParseEnd(payload)
		if err != nil {
			return err
		}
		return f.takeEnd(m)
	case wire.TypeReset:
		m, err := wire.ParseReset(payload)
		if err == nil {
			f.fail(reason.Code(m.Reason), "the peer reset the flow: "+m.Text, false)
		}
		return err
	case wire.TypeOpened, wire.TypeRefused:
		return f.takeAnswer(t, payload)
	}
	return fmt.Errorf("%w: %v in a flow", wire.ErrMalformed, t)
}

func (f *flow) takeAnswer(t wire.Type, payload []byte) error {
	var a answer
	var err error
	if t == wire.TypeOpened {
		_, err = wire.ParseOpened(payload)
	} else {
		var m wire.Refused
		m, err = wire.ParseRefused(payload)
		if a = (answer{code: reason.Code(m.Reason), text: m.Text}); a.code == reason.None {
			a.code = reason.LegFailed
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || !f.near || f.answered {
		return errors.Join(err, fmt.Errorf("%w: %v where none was awaited", wire.ErrMalformed, t))
	}
	f.answered = true
	f.opened = a.code == reason.None
	f.answer <- a
	return nil
}

func (f *flow) takeData(payload []byte) error {
	f.mu.Lock()
	early := f.near && !f.opened || f.endReceived
	f.mu.Unlock()
	if early {
		return fmt.Errorf("%w: DATA out of place", wire.ErrMalformed)
	}
	size := len(payload) + wire.HeaderRoom - 2 // of the frame, nearly
	f.count.wireReceived.Add(int64(size))
	f.p.total.wireReceived.Add(int64(size))
	data, err := f.dec.Decode(payload)
	if ask := (*codec.AskError)(nil); errors.As(err, &ask) {
		f.log.Debug("asking the peer for a block", "block", ask.Block, "retire", ask.Retire, "cause", ask.Err)
		f.e.limited.warn("the history lacks what the peer refers to; it sends that again", "peer", f.p.config().Name, "cause", ask.Err)
		f.mu.Lock()
		f.stopAsking() // an answer may lead to the next ask
		f.ask = &wire.Ask{Block: ask.Block, Retire: ask.Retire, Detail: ask.Detail}
		f.asking = time.AfterFunc(f.e.cfg.Timeouts.Ask, func() {
			f.fail(reason.HistoryMismatch, "no answer to ASK", true)
		})
		f.mu.Unlock()
		f.wake()
		return nil
	}
	if err != nil {
		f.e.limited.warn("a block could not be decoded", "peer", f.p.config().Name, "err", err)
		f.fail(reason.HistoryMismatch, err.Error(), true)
		return nil
	}
	f.mu.Lock()
	if data != nil {
		f.stopAsking()
	}
	f.received += int64(len(data))
	f.blocks = f.dec.Decoded()
	f.active.Store(time.Now().UnixNano())
	over := f.received > f.granted
	f.mu.Unlock()
	if over {
		return fmt.Errorf("%w: more than the credit", wire.ErrMalformed)
	}
	f.count.rawReceived.Add(int64(len(data)))
	f.p.total.rawReceived.Add(int64(len(data)))
	f.hand(data)
	f.ackLater()
	return nil
}

// stopAsking ends the wait for a block; f.mu is held.
func (f *flow) stopAsking() {
	if f.asking != nil {
		f.asking.Stop()
		f.asking = nil
	}
}

// takeEnd ends the peer's direction, if nothing of it is missing.
func (f *flow) takeEnd(m wire.End) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.near && !f.opened || f.endReceived:
		return fmt.Errorf("%w: END out of place", wire.ErrMalformed)
	case f.asking != nil:
		return nil // it comes again behind what was asked for
	case m.Total != uint64(f.received):
		return fmt.Errorf("%w: END after %d bytes, got %d", wire.ErrMalformed, m.Total, f.received)
	}
	f.endReceived = true
	f.queue.end()
	f.wake()
	return nil
}

func (f *flow) takeAck(m wire.Ack) {
	f.enc.Ack(m.Blocks)
	f.mu.Lock()
	f.credit = max(f.credit, int64(min(m.Credit, 1<<62)))
	if f.starved && f.credit > f.sent && f.local != nil {
		f.starved = false
		f.local.SetReadDeadline(past) // send is waiting on the socket
	}
	ended := f.endOut && f.endReceived // what is missing to the last word may be this
	f.mu.Unlock()
	if ended {
		f.wake()
	}
}

// closed is the end of the leg. It is a clean one only after END in both directions. After REFUSED it is expected, and what
// the refusal said is the flow's reason.
func (f *flow) closed(err error) {
	f.mu.Lock()
	f.legEnded = true
	clean := f.endSent && f.endReceived && !f.endLost
	refused := f.refused()
	f.mu.Unlock()
	if !clean && !refused {
		f.fail(reason.LegFailed, fmt.Sprintf("the leg ended: %v", err), false)
	}
	close(f.legEnd)
}

// refused tells whether the peer has said that it does not carry the flow: what it said is the flow's reason then, whatever
// becomes of the leg. The caller holds mu.
func (f *flow) refused() bool { return f.answered && !f.opened }
