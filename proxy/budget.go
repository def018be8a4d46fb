// SPDX-License-Identifier: Apache-2.0

package proxy

import "sync"

// Credit windows of one flow, in raw bytes: what a peer may send before the application here has taken it.
const (
	windowStart = 4 << 20
	windowMax   = 16 << 20
	windowSmall = 256 << 10
	windowLeast = 64 << 10

	windowTrips = 4 // round trips in which a window is used up that is to grow
)

// budget bounds the undelivered bytes of all flows together: each flow's window is taken from it. While little is used, a
// flow has the largest at once: a repeat is small on the wire, and only the window limits it. Then new flows get ever
// smaller ones, those of the first half of the budget room to grow.
type budget struct {
	mu    sync.Mutex
	total int64
	used  int64
}

// open returns the window for a new flow, 0 if nothing is left.
func (b *budget) open() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, try := range []struct{ window, limit int64 }{
		{windowMax, b.total / 4}, {windowStart, b.total / 2}, {windowSmall, b.total / 8 * 7}, {windowLeast, b.total},
	} {
		if b.used+try.window <= try.limit {
			b.used += try.window
			return try.window
		}
	}
	return 0
}

// grow reports whether a flow may have more bytes for its window.
func (b *budget) grow(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+bytes > b.total/2 {
		return false
	}
	b.used += bytes
	return true
}

func (b *budget) release(bytes int64) {
	b.mu.Lock()
	b.used -= bytes
	b.mu.Unlock()
}
