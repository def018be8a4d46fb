// SPDX-License-Identifier: Apache-2.0

package native

import (
	"encoding/binary"
	"time"

	"github.com/trunkline/trunkline/proxy/dedup/codec"
)

// restAfter is after how long without literals the compressed stream begins anew, whether or not Rest was called: the decoder,
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
	e.zip.rest()
	e.match.shrink()
	e.lits, e.spare = nil, nil
	if len(e.blocks) == e.done {
		e.blocks, e.done = nil, 0
	}
}

// appendLiterals appends literals, compressed where that promises to pay.
func (e *Encoder) appendLiterals(dst, lits []byte) ([]byte, form) {
	effort := e.level()
	if e.opt.Stage == codec.StageNone || e.encrypted.Load() {
		return append(dst, lits...), formRaw
	}
	defer e.tail.add(lits)
	if effort < codec.EffortFastest || !e.worth(lits) {
		return append(dst, lits...), formRaw
	}
	now := time.Now()
	goesOn := e.zip.goesOn(effort) && now.Sub(e.packed) < restAfter
	e.packed = now
	f := formZstd
	if e.opt.Stage == codec.Zlib {
		f = formZlib
	}
	if !goesOn {
		f = f.begins()
		dst = e.begin(dst, effort)
	}
	start := len(dst)
	dst = e.zip.add(dst, lits)
	e.probe.Result(len(lits), len(dst)-start)
	if f == formZstd {
		if part, ok := shorten(dst[start:]); ok {
			return dst[:start+copy(dst[start:], part)], formShort
		}
	}
	return dst, f
}

// worth tells whether to try to compress literals: less and less often where that fails, unless they look as if they would.
func (e *Encoder) worth(lits []byte) bool {
	return e.probe.Try(len(lits)) || len(lits) >= probeBytes && !dense(lits)
}

// begin begins the compressed stream anew, and appends by how many of the flow's last literals it is primed.
func (e *Encoder) begin(dst []byte, effort codec.Effort) []byte {
	var prime []byte
	if n := e.tail.len(); n >= primeLeast {
		prime = e.tail.last(n)
	}
	e.zip.begin(effort, prime)
	return binary.AppendUvarint(dst, uint64(len(prime)))
}
