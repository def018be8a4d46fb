// SPDX-License-Identifier: Apache-2.0

package window

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
)

// ReceiveCommand is the hidden command by which the executable is the receiver.
const ReceiveCommand = "bench-window-receive" // bench-window-receive ORDER

// received is what the receiver saw.
type received struct {
	Streams []receivedStream `json:"streams"`
	Held    held             `json:"held"`
}

type receivedStream struct {
	Number int      `json:"number"`
	Bins   []uint64 `json:"bins"` // bytes by binTime since the sender's first connect(), to the end of the time

	err error // then nothing else holds
}

// lookEvery is how long a read waits before the receiver looks at the time.
const lookEvery = 100 * time.Millisecond

// ReceiveMain is the command ReceiveCommand. It says ready when it listens, takes the streams to the end of their time, prints
// what came, and keeps the sockets until its input ends: a reset would reach the sender before it has read its figures.
func ReceiveMain(args []string, stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("%s: reading the order: %w", ReceiveCommand, err)
	}
	listener, err := child.Listen(o.Address, int(o.Port), func(fd int) error { return setBuffer(fd, unix.SO_RCVBUF, o.BufferBytes, rmemMax) })
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	m, done, failed := newMeter(), make(chan receivedStream, o.Streams), make(chan error, 1)
	go func() {
		failed <- child.Accept(listener, func(fd int) {
			m.add(fd)
			go func() { done <- take(fd) }()
		})
	}()
	var out received
	for range o.Streams {
		select {
		case r := <-done:
			if r.err != nil {
				return r.err
			}
			out.Streams = append(out.Streams, r)
		case err := <-failed:
			return err
		}
	}
	out.Held = m.end()
	if err := json.NewEncoder(stdout).Encode(out); err != nil {
		return fmt.Errorf("telling the result: %w", err)
	}
	_, _ = io.Copy(io.Discard, stdin)
	return nil
}

// take reads a stream to the end of its time.
func take(fd int) receivedStream {
	t := taker{fd: fd, buf: make([]byte, chunk), end: child.Monotonic() + int64(connectWait)}
	t.r.err = t.run()
	return t.r
}

type taker struct {
	fd     int
	buf    []byte
	filled int // of the buffer, before the header is whole
	known  bool
	start  int64 // ns
	end    int64 // ns; before the header is whole, when patience ends
	r      receivedStream
}

func (t *taker) run() error {
	tv := unix.NsecToTimeval(int64(lookEvery))
	if err := unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	for {
		n, err := unix.Read(t.fd, t.buf[t.filled:])
		now := child.Monotonic()
		switch {
		case now >= t.end && t.known:
			return nil
		case now >= t.end:
			return errors.New("receiving: a stream connected and sent nothing")
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("receiving: %w", err)
		case n == 0:
			return errors.New("receiving: the sender ended before its time")
		default:
			t.count(n, now)
		}
	}
}

func (t *taker) count(n int, now int64) {
	if !t.known {
		t.filled += n
		if t.filled < headerSize {
			return
		}
		t.header()
		n, t.filled = t.filled, 0
	}
	bin := int((now - t.start) / int64(binTime))
	for len(t.r.Bins) <= bin {
		t.r.Bins = append(t.r.Bins, 0)
	}
	t.r.Bins[bin] += uint64(n)
}

func (t *taker) header() {
	t.known = true
	t.r.Number = int(binary.BigEndian.Uint64(t.buf[0:]))
	t.start = int64(binary.BigEndian.Uint64(t.buf[8:]))
	t.end = t.start + int64(binary.BigEndian.Uint64(t.buf[16:]))
}
