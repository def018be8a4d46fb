// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
)

// ReceiveCommand is the hidden command by which the executable is the receiver.
const ReceiveCommand = "bench-cc-receive" // bench-cc-receive ADDRESS PORT...

// received is what a flow did, as its receiver saw it.
type received struct {
	ID      uint32   `json:"id"`
	Bytes   uint64   `json:"bytes"`   // all of them
	InTime  uint64   `json:"in_time"` // of them, before the time was over
	LastNs  int64    `json:"last_ns"` // when the last byte came, of the monotonic clock
	Bins    []uint64 `json:"bins"`    // bytes by binTime since the start
	Failure string   `json:"err,omitempty"`
}

const (
	// binTime is how finely the receiver tells bytes by time.
	binTime = 100 * time.Millisecond
	// lateWait is how long after the end of its time a flow may still be silent before it is given up: its reset was lost.
	lateWait = 3 * time.Second
)

// ReceiveMain is the command ReceiveCommand. It prints a line when it listens, and a line for each flow that has ended, until
// it is killed.
func ReceiveMain(args []string, stdout io.Writer) error {
	address, err := netip.ParseAddr(args[0])
	if err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(stdout)
	ended := make(chan error)
	for _, text := range args[1:] {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		fd, err := child.Listen(address, int(port))
		if err != nil {
			return err
		}
		go func() {
			ended <- child.Accept(fd, func(fd int) {
				go func() {
					r := take(fd)
					_ = unix.Close(fd)
					mu.Lock()
					defer mu.Unlock()
					_ = out.Encode(r) // who does not read it has gone
				}()
			})
		}()
	}
	fmt.Fprintln(stdout, "ready")
	return <-ended
}

// take reads a flow to its end.
func take(fd int) (r received) {
	t := taker{fd: fd, buf: make([]byte, chunk)}
	if err := t.run(); err != nil {
		t.r.Failure = err.Error()
	}
	return t.r
}

type taker struct {
	fd     int
	buf    []byte
	filled int // of the buffer, before the header is whole
	known  bool
	start  int64 // ns
	end    int64 // ns; of a flow of bytes far away
	r      received
}

func (t *taker) run() error {
	for {
		timeout := finishWait
		if t.known && t.end != forever {
			timeout = time.Duration(max(t.end-child.Monotonic(), 0)) + lateWait
		}
		tv := unix.NsecToTimeval(int64(timeout))
		if err := unix.SetsockoptTimeval(t.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
		}
		over, err := t.readOn(child.Monotonic() + int64(time.Second))
		if over || err != nil {
			return err
		}
	}
}

const forever = 1<<63 - 1

// readOn reads until a time, and says whether the flow is over: by its end, by a reset after its time, or by silence.
func (t *taker) readOn(until int64) (over bool, err error) {
	for {
		n, err := unix.Read(t.fd, t.buf[t.filled:])
		now := child.Monotonic()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0:
			return true, nil
		case err == nil:
			t.count(n, now)
		case t.known && now >= t.end: // the sender resets it; or the reset was lost, and it is silent
			return true, nil
		default:
			return true, fmt.Errorf("receiving, after %d bytes: %w", t.r.Bytes, err)
		}
		if now >= until {
			return false, nil
		}
	}
}

func (t *taker) count(n int, now int64) {
	t.r.Bytes += uint64(n)
	if !t.known {
		t.filled += n
		if t.filled < headerSize {
			return
		}
		t.header()
		n = t.filled
		t.filled = 0
	}
	t.r.LastNs = now
	if now <= t.end {
		t.r.InTime += uint64(n)
	}
	bin := int((now - t.start) / int64(binTime))
	for len(t.r.Bins) <= bin {
		t.r.Bins = append(t.r.Bins, 0)
	}
	t.r.Bins[bin] += uint64(n)
}

func (t *taker) header() {
	t.known = true
	t.r.ID = uint32(binary.BigEndian.Uint64(t.buf[0:]))
	t.start = int64(binary.BigEndian.Uint64(t.buf[8:]))
	t.end = forever
	if d := int64(binary.BigEndian.Uint64(t.buf[16:])); d > 0 {
		t.end = t.start + d
	}
}
