// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/dedup/internal/sniff"
	"github.com/trunkline/trunkline/proxy/history"
)

// restAfter is after how long without payloads the compressed stream begins anew, whether or not Rest was called: the decoder,
// which is told nothing, gives its end up some time later.
const restAfter = 5 * time.Second

// SetEffort says how much work new bytes are worth from the next payload on.
func (e *Encoder) SetEffort(effort codec.Effort) {
	e.effort.Store(uint32(min(effort, codec.EffortBetter)))
}

func (e *Encoder) level() codec.Effort { return codec.Effort(e.effort.Load()) }

// Rest gives back what the encoder can build again, because the flow is idle. The next payload needs no preparation.
func (e *Encoder) Rest() {
	e.work.Lock()
	defer e.work.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shrink()
}

// shrink gives back what can be built again; both locks are held.
func (e *Encoder) shrink() {
	e.forget()
	e.zip.rest()
	for _, b := range e.spare {
		give(b)
	}
	e.lits, e.spare = nil, nil
	if len(e.blocks) == e.done {
		e.blocks, e.done = nil, 0
	}
}

// plain tells whether literals are never compressed.
func (e *Encoder) plain() bool { return e.opt.Stage == codec.StageNone || e.Encrypted() }

// appendLiterals appends literals, compressed where that promises to pay.
func (e *Encoder) appendLiterals(dst, lits []byte) ([]byte, form) {
	if e.plain() {
		return append(dst, lits...), formRaw
	}
	defer e.tail.add(lits)
	effort := e.level()
	switch {
	case effort < codec.EffortFastest:
	case e.opt.Stage == codec.Zstd && len(lits) <= modelMost:
		if len(lits) < sniff.TooShort || e.few.Try(len(lits)) {
			return e.appendModelled(dst, lits)
		}
	case e.worth(lits):
		return e.appendPacked(dst, lits, effort)
	}
	return append(dst, lits...), formRaw
}

// appendPacked appends the next part of the compressed stream.
func (e *Encoder) appendPacked(dst, lits []byte, effort codec.Effort) ([]byte, form) {
	f := formOn
	if !e.zip.goesOn(effort) {
		f = formZstd
		if e.opt.Stage == codec.Zlib {
			f = formZlib
		}
		prime := e.prime(primeBytes)
		e.zip.begin(effort, prime)
		e.begun = e.match.at.Head
		dst = binary.AppendUvarint(dst, uint64(len(prime)))
	}
	start := len(dst)
	dst = e.zip.add(dst, lits)
	e.probe.Result(len(lits), len(dst)-start)
	if f == formOn && e.opt.Stage == codec.Zstd {
		if part, ok := shorten(dst[start:]); ok {
			return dst[:start+copy(dst[start:], part)], formShort
		}
	}
	return dst, f
}

// appendModelled appends what the model makes of a few literals.
func (e *Encoder) appendModelled(dst, lits []byte) ([]byte, form) {
	f := formModel
	if e.model == nil {
		f = formModelNew
		prime := e.prime(modelPrime)
		e.model = newModel(prime)
		dst = binary.AppendUvarint(dst, uint64(len(prime)))
	}
	start := len(dst)
	dst = e.model.encode(dst, lits)
	if e.model.at >= modelTried {
		e.few.Result(len(lits), len(dst)-start)
	}
	return dst, f
}

// compressed returns the position from which on what the log holds is, as far as it is this flow's, what the compressor looks back to.
func (e *Encoder) compressed(head uint64) uint64 {
	if !e.zip.live || e.opt.Stage != codec.Zstd || e.level() < codec.EffortFastest {
		return history.MaxPos
	}
	window := uint64(windows[e.zip.effort])
	return max(e.begun, head-min(head, window))
}

// forget gives the model back and begins streams anew: the decoder may have given its ends up.
func (e *Encoder) forget() {
	e.zip.live = false
	if e.model != nil {
		models.Put(e.model)
		e.model = nil
	}
}

// prime returns up to most of the flow's last literals.
func (e *Encoder) prime(most int) []byte {
	n := min(e.tail.len(), most)
	if n < primeLeast {
		return nil
	}
	return e.tail.last(n)
}

// worth tells whether to try to compress literals: less and less often where that fails, unless they look as if they would.
func (e *Encoder) worth(lits []byte) bool {
	return e.probe.Try(len(lits)) || len(lits) >= probeBytes && !dense(lits)
}
