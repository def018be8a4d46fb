// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"time"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// ackBytes is how many raw bytes may be unacknowledged before an ACK goes out without delay.
const ackBytes = 256 << 10

// tell sends what is not data: ACK, ASK and its answer, RESET, and the end of the leg.
func (f *flow) tell() {
	for {
		select {
		case <-f.legEnd:
			return
		case <-f.news:
		}
		for act := f.next(); act != nil; act = f.next() {
			if !act() {
				return
			}
		}
	}
}

// next decides what is to be told. The action returns false after the last word.
func (f *flow) next() (act func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return f.lastWord(f.reset)
	}
	if ask := f.ask; ask != nil {
		f.ask = nil
		return func() bool { return f.say(wire.TypeAsk, ask.Append(nil)) }
	}
	if ask := f.resend; ask != nil {
		f.resend = nil
		return func() bool { f.sendAgain(*ask); return true }
	}
	if f.ackDue() || f.creditDue() {
		m := f.makeAck()
		return func() bool { return f.say(wire.TypeAck, m.Append(nil)) }
	}
	if f.blocks == f.acked && f.endOut && f.endReceived && f.enc.Unacked() == 0 {
		return f.lastWord(nil)
	}
	return nil
}

// ackDue tells whether blocks are to be acknowledged that wait no longer for data to take the ACK along; f.mu is held.
func (f *flow) ackDue() bool {
	return f.blocks > f.acked && (f.received-f.ackedBytes >= ackBytes || f.endReceived || f.ackLate)
}

// ackLater has what was decoded acknowledged, at once if that is much. Nobody is woken for the usual block of a dialogue,
// since the answer takes the ACK along.
func (f *flow) ackLater() {
	f.mu.Lock()
	now := f.ackDue() || f.creditDue()
	if !now && f.blocks > f.acked && !f.ackArmed {
		f.ackArmed = true
		if f.ackTimer == nil {
			f.ackTimer = time.AfterFunc(f.e.cfg.Timeouts.AckDelay, f.ackIsLate)
		} else {
			f.ackTimer.Reset(f.e.cfg.Timeouts.AckDelay)
		}
	}
	f.mu.Unlock()
	if now {
		f.wake()
	}
}

func (f *flow) ackIsLate() {
	f.mu.Lock()
	f.ackArmed = false
	f.ackLate = f.blocks > f.acked
	late := f.ackLate
	f.mu.Unlock()
	if late {
		f.wake()
	}
}

// makeAck notes that an ACK is sent; f.mu is held.
func (f *flow) makeAck() wire.Ack {
	f.acked, f.ackedBytes, f.ackLate = f.blocks, f.received, false
	f.granted = max(f.granted, f.written+f.window)
	return wire.Ack{Blocks: f.acked, Credit: uint64(f.granted)}
}

// withAck appends an ACK to frames that are about to be sent anyway.
func (f *flow) withAck(frames []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blocks == f.acked {
		return frames
	}
	m := f.makeAck()
	return wire.AppendFrame(frames, wire.TypeAck, m.Append(nil))
}

func (f *flow) say(t wire.Type, payload []byte) bool {
	f.write(wire.AppendFrame(nil, t, payload))
	return true
}

// lastWord ends the leg from this end.
func (f *flow) lastWord(reset *wire.Reset) func() bool {
	return func() bool {
		f.leg.hurry()
		if reset != nil {
			f.say(wire.TypeReset, reset.Append(nil))
		}
		f.leg.shut()
		return false
	}
}

// sendAgain answers an ASK. END goes out once more, because the peer skipped it.
func (f *flow) sendAgain(ask wire.Ask) {
	f.sending.Lock()
	defer f.sending.Unlock()
	err := f.enc.Resend(codec.Ask{Block: ask.Block, Retire: ask.Retire, Detail: ask.Detail}, func(payload []byte) error {
		frame := wire.AppendFrame(nil, wire.TypeData, payload)
		f.countSent(0, len(frame))
		return f.leg.write(frame)
	})
	if err != nil {
		f.e.limited.warn("the peer asked for a block that is gone", "peer", f.p.config().Name, "err", err)
		f.fail(reason.HistoryMismatch, err.Error(), true)
		return
	}
	f.mu.Lock()
	ended := f.endSent
	m := wire.End{Total: uint64(f.sent)}
	f.mu.Unlock()
	if ended {
		f.say(wire.TypeEnd, m.Append(nil))
	}
}
