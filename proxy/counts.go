// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"sync"

	"github.com/trunkline/trunkline/bpf/reason"
)

// reasonCounts is how often each reason was given to a flow in the engine. The kernel side counts those that it gives.
type reasonCounts struct {
	mu     sync.Mutex
	counts map[reason.Code]uint64
}

func (r *reasonCounts) add(code reason.Code) {
	if code == reason.None {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[reason.Code]uint64{}
	}
	r.counts[code]++
}

// ReasonCounts returns how often each reason was given to a flow that had come to the engine, since the start.
func (e *Engine) ReasonCounts() map[reason.Code]uint64 {
	e.reasons.mu.Lock()
	defer e.reasons.mu.Unlock()
	return maps.Clone(e.reasons.counts)
}
