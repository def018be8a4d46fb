// SPDX-License-Identifier: Apache-2.0

package proxy

import "sync"

// chunkMin is what a chunk of the queue has room for at least, in bytes: many small messages share one.
const chunkMin = 4 << 10

// queue holds decoded bytes until the application takes them. Its size is bounded by the credit that the peer was given.
type queue struct {
	buffers *buffers

	mu     sync.Mutex
	ready  sync.Cond
	chunks [][]byte
	busy   bool // a chunk is out
	ended  bool // nothing follows the chunks
	broken bool // nothing is given out any more
}

func newQueue(b *buffers) *queue {
	q := &queue{buffers: b}
	q.ready.L = &q.mu
	return q
}

// push copies data to the end of the queue.
func (q *queue) push(data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken || q.ended || len(data) == 0 {
		return
	}
	if n := len(q.chunks); n > 0 {
		last := q.chunks[n-1]
		k := min(cap(last)-len(last), len(data))
		q.chunks[n-1] = append(last, data[:k]...)
		data = data[k:]
	}
	if len(data) > 0 {
		chunk := q.buffers.get(max(len(data), chunkMin))
		q.chunks = append(q.chunks, append(chunk[:0], data...))
	}
	q.ready.Signal()
}

// idle tells whether all that was pushed has been written: what is pushed next would be the next to be written.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.chunks) == 0 && !q.busy && !q.ended && !q.broken
}

// end says that nothing more will be pushed: pop gives what is left, then nil.
func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.ready.Broadcast()
}

// abandon gives everything up.
func (q *queue) abandon() {
	q.mu.Lock()
	q.broken = true
	for _, c := range q.chunks {
		q.buffers.put(c)
	}
	q.chunks = nil
	q.mu.Unlock()
	q.ready.Broadcast()
}

// pop waits for a chunk, which the caller gives back to the buffers once it is written; nil at the end. It belongs to one
// goroutine.
func (q *queue) pop() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	for len(q.chunks) == 0 && !q.ended && !q.broken {
		q.ready.Wait()
	}
	if len(q.chunks) == 0 {
		return nil
	}
	chunk := q.chunks[0]
	q.chunks[0] = nil
	q.chunks = q.chunks[1:]
	q.busy = true
	return chunk
}
