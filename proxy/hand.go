// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
)

// hand gives decoded bytes to the application: as far as its socket takes them at once, where nothing waits before them, and
// the rest by way of the queue. That saves a copy of each byte, and the wait for another goroutine. It belongs to the leg's
// reader, which alone fills the queue.
func (f *flow) hand(data []byte) {
	f.mu.Lock()
	ready := f.delivering && !f.failed
	f.mu.Unlock()
	if ready && len(data) > 0 && f.queue.idle() {
		f.handing, f.handed = data, 0
		_ = f.local.raw.Control(f.handNow) // of a closed socket deliver will tell
		f.handing = nil
		if n := f.handed; n > 0 {
			f.wrote(n)
			data = data[n:]
		}
	}
	f.queue.push(data)
}

// handSome writes what the local socket takes now. An error is left to deliver, which gets it for what is left.
func (f *flow) handSome(fd uintptr) {
	for f.handed < len(f.handing) {
		n, err := unix.Write(int(fd), f.handing[f.handed:])
		switch err {
		case nil:
			f.handed += n
		case unix.EINTR:
		default:
			return
		}
	}
}

// deliver writes what is left in the queue to the local socket.
func (f *flow) deliver() {
	defer close(f.delivered)
	for chunk := f.queue.pop(); chunk != nil; chunk = f.queue.pop() {
		n, err := f.local.Write(chunk)
		f.e.buffers.put(chunk)
		if err != nil {
			f.writeFailed(err)
			return
		}
		f.wrote(n)
	}
	f.mu.Lock()
	failed, both := f.failed, f.endOut
	f.mu.Unlock()
	if failed {
		return
	}
	if !both { // else finishLocal closes the socket, so that nothing is read into how the other end answers its FIN
		if err := f.local.CloseWrite(); err != nil {
			f.writeFailed(err)
			return
		}
	}
	f.mu.Lock()
	f.endDelivered = true
	f.mu.Unlock()
	f.finishLocal()
}

// writeFailed ends a flow whose local end takes nothing more. What it sent before that still goes to the peer: a server may
// answer and close without having read everything.
func (f *flow) writeFailed(err error) {
	select {
	case <-f.readEnd:
	case <-f.over:
	case <-time.After(resetGrace):
	}
	f.fail(reason.None, fmt.Sprintf("writing: %v", err), true)
}

// wrote counts what was delivered.
func (f *flow) wrote(n int) {
	f.mu.Lock()
	f.written += int64(n)
	if f.window < windowMax && f.written-f.windowAt >= f.window {
		f.widen()
	}
	due := f.creditDue()
	f.mu.Unlock()
	if due {
		f.wake()
	}
}

// creditDue tells whether the peer is to be told of more credit; f.mu is held.
func (f *flow) creditDue() bool { return f.written+f.window-f.granted >= f.window/4 }

// widen doubles the window if the application took all of it within a few round trips: then the window may be what limits
// the flow. f.mu is held.
func (f *flow) widen() {
	now := time.Now()
	took := now.Sub(f.windowTime)
	f.windowAt, f.windowTime = f.written, now
	if took < windowTrips*f.leg.sock.roundTrip() && f.e.budget.grow(f.window) {
		f.grown += f.window
		f.window *= 2
	}
}
