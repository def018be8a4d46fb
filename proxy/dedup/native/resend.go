// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// Resend answers an ask: it gives the restart payloads of all blocks from the one asked for on to emit, in order. If it says so, the
// peer's history did not hold what it should, and a new generation is begun. After an error the flow has to be reset.
func (e *Encoder) Resend(ask codec.Ask, emit func(payload []byte) error) error {
	e.work.Lock()
	defer e.work.Unlock()
	block := ask.Block
	if block < e.asked {
		return fmt.Errorf("block %d was asked for twice", block)
	}
	e.asked = block + 1
	e.mu.Lock()
	b, held := e.at(block)
	e.mu.Unlock()
	if !held {
		return fmt.Errorf("resending block %d: %w", block, errNotHeld)
	}
	if ask.Retire && b.gen != 0 {
		e.match.log.Retire(b.gen)
	}
	// Both ends begin anew: the zstd stream, and what positions are relative to.
	e.forget()
	e.placed, e.match.next = false, 0
	e.tail.clear()
	var buf []byte
	for {
		payload, err := e.restart(buf[:0], block)
		if errors.Is(err, errDone) {
			return nil
		} else if err != nil {
			return err
		}
		e.CountAgain(len(payload))
		if err := emit(payload); err != nil {
			return fmt.Errorf("resending block %d: %w", block, err)
		}
		buf, block = payload, block+1
	}
}

var errDone = errors.New("no more blocks")

// restart appends the restart payload of a block.
func (e *Encoder) restart(dst []byte, block uint64) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.at(block)
	if !ok && block >= e.first && !e.closed {
		return nil, errDone
	}
	if !ok || b.pos == 0 && b.data == nil {
		return nil, fmt.Errorf("resending block %d: %w", block, errNotHeld)
	}
	pl := place{number: block}
	flags := byte(formRaw)<<formShift | flagRestart
	start := len(dst)
	dst = append(dst, 0)
	dst = binary.AppendUvarint(dst, block)
	if b.pos != 0 {
		pl.pos = b.pos
		if pl.generation, pl.recorded = e.leg.Current(b.pos); pl.recorded {
			flags |= flagRecorded | flagPlace
			dst = appendPlace(dst, pl.generation, pl.pos)
		}
	}
	dst[start] = flags
	dst = binary.AppendUvarint(dst, uint64(b.n))
	at := len(dst)
	if b.pos != 0 {
		dst = append(dst, make([]byte, b.n)...)
		if !e.leg.Read(b.pos, dst[at:]) {
			return nil, fmt.Errorf("resending block %d, which the disk has lost: %w", block, errNotHeld)
		}
	} else {
		dst = append(dst, b.data...)
	}
	return appendCheck(dst, pl.check(dst[at:]), 8), nil
}
