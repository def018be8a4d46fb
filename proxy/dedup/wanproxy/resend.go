// SPDX-License-Identifier: Apache-2.0

package wanproxy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

var (
	errNotHeld = errors.New("block is no longer held")
	errAgain   = errors.New("it was asked for too often")
)

// maxAsks is how often segments of one block may be asked for: as many fit into one, with some for what was lost meanwhile.
const maxAsks = codec.MaxBlock/codec.MinSegment/maxAsked + 4

// asks keeps a peer from asking without end.
type asks struct {
	raw   uint64 // blocks below it were asked for raw
	block uint64 // the last of which segments were asked for
	times int
}

// Resend answers an ask: with the segments asked for, or, where these are gone or the block itself is wanted, with all blocks from
// that one on, raw. After an error the flow has to be reset.
func (e *Encoder) Resend(ask codec.Ask, emit func(payload []byte) error) error {
	e.work.Lock()
	defer e.work.Unlock()
	e.mu.Lock()
	_, held := e.sent.block(ask.Block)
	e.mu.Unlock()
	if !held || e.closed {
		return fmt.Errorf("resending block %d: %w", ask.Block, errNotHeld)
	}
	if err := e.answer(ask, emit); err != nil {
		return fmt.Errorf("resending block %d: %w", ask.Block, err)
	}
	return nil
}

func (e *Encoder) answer(ask codec.Ask, emit func(payload []byte) error) error {
	var learn []byte
	known := false
	if len(ask.Detail) > 0 {
		if ask.Block != e.asks.block {
			e.asks.block, e.asks.times = ask.Block, 0
		}
		if e.asks.times++; e.asks.times > maxAsks {
			return errAgain
		}
		var err error
		if learn, known, err = e.learn(ask.Detail); err != nil {
			return err
		}
	}
	switch {
	case e.cache == nil:
	case ask.Retire:
		e.mu.Lock()
		epoch := e.sent.epoch(ask.Block)
		e.mu.Unlock()
		e.cache.retire(epoch)
	case len(ask.Detail) > 0:
		e.cache.shrink()
	}
	if known {
		e.taught(ask.Detail)
		return e.teach(learn, emit)
	}
	if ask.Block < e.asks.raw {
		return errAgain
	}
	e.asks.raw = ask.Block + 1
	return e.restart(ask.Block, emit)
}

// learn makes the payload that answers an ask; known: all that is wanted is there.
func (e *Encoder) learn(detail []byte) (payload []byte, known bool, err error) {
	if len(detail) < askBytes+8 || len(detail)%8 != askBytes || detail[0] != magic || detail[1] != opAsk {
		return nil, false, errFormat
	}
	payload = []byte{answerLearn}
	for r := (reader{b: detail[2:]}); len(r.b) > 0; {
		h := r.hash()
		payload = appendHash(append(payload, magic, opLearn), h)
		known = e.cache != nil
		if known {
			payload, known = e.cache.get(payload, h)
		}
		if !known {
			return nil, false, nil
		}
	}
	return payload, true, nil
}

// taught declares the segments of an ask: the peer has them when it acknowledges what was sent so far.
func (e *Encoder) taught(detail []byte) {
	c := e.cache
	c.mu.Lock()
	var list []declared
	for r := (reader{b: detail[2:]}); len(r.b) > 0; {
		h := r.hash()
		slot := c.lookup(h)
		if slot == 0 {
			continue
		}
		if n := c.entry(slot); n.epoch != c.epoch || n.owner == nobody {
			n.owner, n.epoch = e.flow, c.epoch
		}
		list = append(list, declared{hash: h, slot: slot, epoch: c.epoch})
	}
	c.mu.Unlock()
	e.mu.Lock()
	for i := range list {
		list[i].block = e.sent.number() - 1
	}
	e.declared = append(e.declared, list...)
	e.mu.Unlock()
}

// teach sends segments, and lets the decoder go on with what waits, in steps that bound what it gives out at once.
func (e *Encoder) teach(learn []byte, emit func(payload []byte) error) error {
	e.mu.Lock()
	steps := e.sent.unacked()/moreBytes + 2
	e.mu.Unlock()
	e.CountAgain(len(learn) + steps)
	if err := emit(learn); err != nil {
		return err
	}
	for range steps {
		if err := emit([]byte{answerMore}); err != nil {
			return err
		}
	}
	return nil
}

// restart sends all blocks from one on raw. Both ends begin anew behind them.
func (e *Encoder) restart(number uint64, emit func(payload []byte) error) error {
	e.pack.Restart()
	e.search.carry.live = false
	e.out.gap = 0
	e.mu.Lock()
	e.search.restart(e.sent.end)
	// The decoder has dropped these blocks, and with them what they declare.
	n := e.known
	for n < len(e.declared) && e.declared[n].block < number {
		n++
	}
	lost := e.declared[n:]
	e.declared = e.declared[:n]
	end := e.sent.number()
	e.mu.Unlock()
	if len(lost) > 0 {
		e.cache.disown(e.flow, lost)
	}
	var payload []byte
	for ; number < end; number++ {
		e.mu.Lock()
		b, ok := e.sent.block(number)
		if !ok {
			e.mu.Unlock()
			return errNotHeld
		}
		payload = append(binary.AppendUvarint(append(payload[:0], answerRaw), number), b...)
		payload = appendCheck(payload, check(number, b), false)
		e.mu.Unlock()
		e.CountAgain(len(payload))
		if err := emit(payload); err != nil {
			return err
		}
	}
	return nil
}
