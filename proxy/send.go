// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/dedup"
	"github.com/trunkline/trunkline/proxy/dedup/codec"
	"github.com/trunkline/trunkline/proxy/wire"
)

// spliceBytes is how much is read of a connection before its application's end is taken out of the sockmap.
const spliceBytes = 256 << 10

var errStopped = errors.New("stopped")

// send reads the local socket and sends what it reads: at once while the link asks for more, else as much as has come
// until it does.
func (f *flow) send() {
	defer close(f.sendEnd)
	f.mu.Lock()
	s := f.local
	f.mu.Unlock()
	if s == nil {
		return
	}
	out := newOutlet(f, s)
	for total := 0; ; {
		buf, err := out.read()
		if len(buf) > 0 {
			if f.near && total < spliceBytes && total+len(buf) >= spliceBytes {
				f.e.cfg.Kernel.SpliceDone(f.client)
			}
			total += len(buf)
			out.block(buf)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			close(f.readEnd)
			f.sendLast()
			f.watchLocal(s)
			return
		case errors.Is(err, errStopped):
			return
		default:
			close(f.readEnd)
			f.broke("reading", err)
			return
		}
	}
}

// An outlet takes bytes from the local socket to the leg. It belongs to the goroutine that sends.
type outlet struct {
	f        *flow
	local    *sock
	room     *room
	size     dedup.BlockSize // of the next read
	governor *dedup.Governor
	taker    codec.Taker // the encoder, if it is one
	give     func([]byte)

	// Of one read: the function is made once, and so has no arguments of its own.
	readable func(fd uintptr) bool
	buf      []byte
	err      error

	pending func(fd uintptr) // finds whether more is waiting to be read
	poll    [1]unix.PollFd
	more    bool
}

func newOutlet(f *flow, local *sock) *outlet {
	o := &outlet{f: f, local: local, room: newRoom(f.leg.sock.raw), size: dedup.NewBlockSize(), governor: dedup.NewGovernor(), give: f.e.buffers.put}
	o.taker, _ = f.enc.(codec.Taker)
	o.readable = func(fd uintptr) bool {
		o.buf, o.err = f.tryRead(int(fd), o.size.Bytes())
		return o.err != unix.EAGAIN
	}
	o.pending = func(fd uintptr) {
		o.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		n, err := unix.Poll(o.poll[:], 0)
		o.more = err == nil && n > 0
	}
	if f.group != "" {
		o.governor.Least = codec.EffortReferences
	}
	f.setEffort(o.governor.Effort())
	return o
}

// read reads up to size bytes, as far as the peer's credit goes. It holds no buffer while it waits. Without credit it still
// notices when the connection is reset. It is a plain read(2): splice(2) loses what a sockmap has put into the socket.
func (o *outlet) read() ([]byte, error) {
	f := o.f
	for {
		f.mu.Lock()
		if f.stopSend {
			f.mu.Unlock()
			return nil, errStopped
		}
		f.starved = f.credit <= f.sent
		o.local.SetReadDeadline(noDeadline)
		f.mu.Unlock()
		failure := o.local.raw.Read(o.readable)
		switch {
		case failure == nil:
			return o.buf, o.err
		case !errors.Is(failure, os.ErrDeadlineExceeded):
			return nil, errStopped // closed
		}
	}
}

// tryRead is one attempt to read; EAGAIN: there is nothing, or no credit.
func (f *flow) tryRead(fd, size int) ([]byte, error) {
	f.mu.Lock()
	room := int(min(int64(size), f.credit-f.sent))
	stopped := f.stopSend
	f.mu.Unlock()
	if stopped {
		return nil, errStopped
	}
	if room <= 0 {
		if err := socketError(fd); err != nil {
			return nil, err
		}
		return nil, unix.EAGAIN
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.detached {
		return nil, errStopped
	}
	buf := f.e.buffers.get(room)
	n, err := unix.Read(fd, buf)
	for err == unix.EINTR {
		n, err = unix.Read(fd, buf)
	}
	if err != nil || n == 0 {
		f.e.buffers.put(buf)
		if err == nil {
			err = f.endOf(fd)
		}
		return nil, err
	}
	f.payload = true
	f.mu.Lock()
	f.sent += int64(n)
	f.mu.Unlock()
	return buf[:n], nil
}

// endOf tells what a read of nothing means.
func (f *flow) endOf(fd int) error {
	f.mu.Lock()
	read := f.sent
	f.mu.Unlock()
	if cutOff(fd, read) {
		return unix.ECONNRESET
	}
	return io.EOF
}

// sendLast sends END.
func (f *flow) sendLast() {
	f.sending.Lock()
	f.mu.Lock()
	m := wire.End{Total: uint64(f.sent)}
	f.endSent = true
	f.mu.Unlock()
	written := f.write(wire.AppendFrame(nil, wire.TypeEnd, m.Append(nil)))
	f.sending.Unlock()
	f.mu.Lock()
	f.endOut, f.endLost = written, !written
	lost := f.legEnded && !written && !f.refused() // its end was taken for a clean one
	f.mu.Unlock()
	if lost {
		f.fail(reason.LegFailed, "the leg ended before END was written", false)
		return
	}
	f.finishLocal()
	f.wake()
}

// watchLocal waits for a reset after the local socket's last byte.
func (f *flow) watchLocal(s *sock) {
	for {
		err := s.watch()
		f.mu.Lock()
		stopped := f.stopSend || f.localDone
		f.mu.Unlock()
		if stopped {
			return
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			f.broke("after the last byte", err)
			return
		}
		s.SetReadDeadline(noDeadline)
	}
}
