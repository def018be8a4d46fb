// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"sync"
)

// coalescer is the connection below TLS. It collects the records of one frame and sends them in one piece: a write for each
// record would end each in a packet that is not full, as there is no delay to fill it (TCP_NODELAY).
type coalescer struct {
	*net.TCPConn
	buffers *buffers
	turn    *turn // of the handshake; nil: it is over. It belongs to the handshake's goroutine

	mu   sync.Mutex
	hold bool
	held []byte
}

// Write sends, or keeps while records are being collected.
func (c *coalescer) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hold {
		return c.TCPConn.Write(b)
	}
	if cap(c.held)-len(c.held) < len(b) {
		bigger := c.buffers.get(2*len(c.held) + len(b))[:0]
		bigger = append(bigger, c.held...)
		c.buffers.put(c.held)
		c.held = bigger
	}
	c.held = append(c.held, b...)
	return len(b), nil
}

func (c *coalescer) collect() {
	c.mu.Lock()
	c.hold = true
	c.mu.Unlock()
}

// flush sends what was collected.
func (c *coalescer) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	c.hold, c.held = false, nil
	if len(held) == 0 {
		return nil
	}
	_, err := c.TCPConn.Write(held)
	c.buffers.put(held)
	return err
}
