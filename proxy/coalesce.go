// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// recordRoom is what a TLS record takes besides its 16 KiB, in bytes, and a little more.
const recordRoom = 32

// coalescer is the connection below TLS. It collects the records of one frame and sends them in one piece: a write for each
// record would end each in a packet that is not full, as there is no delay to fill it (TCP_NODELAY).
type coalescer struct {
	*net.TCPConn
	raw     syscall.RawConn
	buffers *buffers
	push    func(fd uintptr) bool // pushSome, made once
	turn    *turn                 // of the handshake; nil: it is over. It belongs to the handshake's goroutine

	mu     sync.Mutex
	hold   bool
	held   []byte
	rest   []byte // of what is being written
	failed error
	full   time.Time // since when the kernel takes nothing; zero: it does
	waited time.Duration
}

func newCoalescer(s *sock, b *buffers) *coalescer {
	c := &coalescer{TCPConn: s.TCPConn, raw: s.raw, buffers: b}
	c.push = c.pushSome
	return c
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

// collect keeps what is written from now on, about so many bytes before encryption.
func (c *coalescer) collect(bytes int) {
	c.mu.Lock()
	c.hold = true
	c.held = c.buffers.get(bytes + (bytes>>14+1)*recordRoom)[:0]
	c.mu.Unlock()
}

// flush sends what was collected, and tells for how long the kernel took nothing meanwhile.
func (c *coalescer) flush() (waited time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	c.hold, c.held = false, nil
	c.rest, c.failed, c.full, c.waited = held, nil, time.Time{}, 0
	if len(held) > 0 {
		err = c.raw.Write(c.push)
	}
	c.buffers.put(held)
	c.rest = nil
	if err == nil {
		err = c.failed
	}
	return c.waited, err
}

// pushSome writes what the kernel takes; false: it takes no more now.
func (c *coalescer) pushSome(fd uintptr) bool {
	if !c.full.IsZero() {
		c.waited += time.Since(c.full)
		c.full = time.Time{}
	}
	for len(c.rest) > 0 {
		n, err := unix.Write(int(fd), c.rest)
		switch err {
		case nil:
			c.rest = c.rest[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			c.full = time.Now()
			return false
		default:
			c.failed = err
			return true
		}
	}
	return true
}
