// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/proxy/wire"
)

// Sizes in bytes of what is read for one block. It grows while reads fill it and blocks stay small on the wire, and
// shrinks when they do not: a block is delivered only when all of it has arrived.
const (
	readLeast  = 64 << 10
	readMost   = wire.MaxBlock
	frameSmall = 32 << 10
	frameLarge = 128 << 10
)

// spliceBytes is how much is read of a connection before its application's end is taken out of the sockmap.
const spliceBytes = 256 << 10

var errStopped = errors.New("stopped")

// send reads the local socket and sends what it reads, at once.
func (f *flow) send() {
	defer close(f.sendEnd)
	f.mu.Lock()
	s := f.local
	f.mu.Unlock()
	if s == nil {
		return
	}
	total := 0
	for size := readLeast; ; {
		buf, err := f.read(s, size)
		if len(buf) > 0 {
			if f.near && total < spliceBytes && total+len(buf) >= spliceBytes {
				f.e.cfg.Kernel.SpliceDone(f.client)
			}
			total += len(buf)
			size = f.sendBlock(buf, size)
			f.e.buffers.put(buf)
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

// read reads up to size bytes, as far as the peer's credit goes. It holds no buffer while it waits. Without credit it still
// notices when the connection is reset. It is a plain read(2): splice(2) loses what a sockmap has put into the socket.
func (f *flow) read(s *sock, size int) (buf []byte, err error) {
	for {
		f.mu.Lock()
		if f.stopSend {
			f.mu.Unlock()
			return nil, errStopped
		}
		f.starved = f.credit <= f.sent
		s.SetReadDeadline(noDeadline)
		f.mu.Unlock()
		failure := s.raw.Read(func(fd uintptr) bool {
			buf, err = f.tryRead(int(fd), size)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case failure == nil:
			return buf, err
		case !errors.Is(failure, os.ErrDeadlineExceeded):
			return nil, errStopped // closed
		}
	}
}

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

// sendBlock encodes and sends one block, and returns the size of the next read.
func (f *flow) sendBlock(raw []byte, size int) int {
	f.sending.Lock()
	defer f.sending.Unlock()
	out := f.e.buffers.get(wire.HeaderRoom + len(raw) + len(raw)/16 + 256)
	out = f.enc.Encode(out[:wire.HeaderRoom], raw)
	frame := wire.Seal(wire.TypeData, out)
	f.encReason.Store(uint32(f.enc.Reason()))
	f.countSent(len(raw), len(frame))
	f.write(f.withAck(frame))
	f.e.buffers.put(out)
	switch {
	case len(frame) > frameLarge:
		return max(size/2, readLeast)
	case len(frame) < frameSmall && len(raw) == size:
		return min(size*2, readMost)
	}
	return size
}

func (f *flow) countSent(raw, wire int) {
	f.count.rawSent.Add(int64(raw))
	f.count.wireSent.Add(int64(wire))
	f.p.total.rawSent.Add(int64(raw))
	f.p.total.wireSent.Add(int64(wire))
}

// write writes frames to the leg; false if it could not. The error is left to the leg's reader: something that explains it
// may still be on its way.
func (f *flow) write(frames []byte) bool {
	err := f.leg.write(frames)
	if err != nil {
		f.leg.expire()
	}
	return err == nil
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
