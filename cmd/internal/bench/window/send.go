// SPDX-License-Identifier: Apache-2.0

package window

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench/child"
)

// SendCommand is the hidden command by which the executable is the sender.
const SendCommand = "bench-window-send" // bench-window-send ORDER

// order is what both ends are told, as JSON.
type order struct {
	Address     netip.Addr    `json:"address"`
	Port        uint16        `json:"port"`
	Streams     int           `json:"streams"`
	Time        time.Duration `json:"time"`         // from the first connect()
	Congestion  string        `json:"congestion"`   // of the sender's sockets; "": the host's default
	BufferBytes int           `json:"buffer_bytes"` // SO_SNDBUF or SO_RCVBUF of each stream; 0: the kernel's
}

// sent is what the sender saw.
type sent struct {
	StartNs int64        `json:"start_ns"` // of the monotonic clock, right before the first connect()
	Streams []sentStream `json:"streams"`
	Held    held         `json:"held"`
}

type sentStream struct {
	Retransmits uint64 `json:"retransmits"` // segments
	Congestion  string `json:"congestion"`
	RwndUs      uint64 `json:"rwnd_us"`    // held up by the receiver's window
	SndbufUs    uint64 `json:"sndbuf_us"`  // held up by the send buffer
	MinRTTUs    uint32 `json:"min_rtt_us"` //

	err error // then nothing else holds
}

const (
	chunk = 128 << 10 // written and read at once
	// headerSize bytes begin every stream, and count like the others: number, start and duration for the receiver.
	headerSize  = 24
	connectWait = 30 * time.Second
)

// SendMain is the command SendCommand. It prepares the sockets, says ready, waits for a line, sends, and prints what the streams
// did; the sockets stay until its input ends.
func SendMain(args []string, stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("%s: reading the order: %w", SendCommand, err)
	}
	m := newMeter()
	senders := make([]*sender, o.Streams)
	for i := range senders {
		s := &sender{order: &o, number: i}
		if err := s.prepare(); err != nil {
			return err
		}
		m.add(s.fd)
		senders[i] = s
	}
	fmt.Fprintln(stdout, "ready")
	in := bufio.NewReader(stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	out, done := sent{StartNs: child.Monotonic()}, make(chan sentStream, len(senders))
	for _, s := range senders {
		s.start = out.StartNs
		go func() { done <- s.run() }()
	}
	for range senders {
		s := <-done
		if s.err != nil {
			return s.err // the process ends, and the other streams with it
		}
		out.Streams = append(out.Streams, s)
	}
	out.Held = m.end()
	if err := json.NewEncoder(stdout).Encode(out); err != nil {
		return fmt.Errorf("telling the result: %w", err)
	}
	_, _ = io.Copy(io.Discard, in)
	for _, s := range senders {
		_ = unix.Close(s.fd)
	}
	return nil
}

// sender is one stream. It sleeps in the kernel until it can write.
type sender struct {
	*order
	number int
	fd     int
	start  int64 // ns
	sent   uint64
	buf    [chunk]byte
}

func (s *sender) prepare() (err error) {
	if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err != nil {
		return os.NewSyscallError("socket", err)
	}
	// What is not acknowledged in the end goes with the socket.
	if err := unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return os.NewSyscallError("setsockopt SO_LINGER", err)
	}
	if s.Congestion != "" {
		if err := unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, s.Congestion); err != nil {
			return fmt.Errorf("giving a socket the congestion control %s: %w", s.Congestion, err)
		}
	}
	return setBuffer(s.fd, unix.SO_SNDBUF, s.BufferBytes, wmemMax)
}

func (s *sender) run() (out sentStream) {
	if out.err = s.send(); out.err != nil {
		return out
	}
	info, _, err := child.TCPInfo(s.fd)
	if err != nil {
		return sentStream{err: err}
	}
	out = sentStream{Retransmits: uint64(info.Total_retrans), RwndUs: info.Rwnd_limited, SndbufUs: info.Sndbuf_limited, MinRTTUs: info.Min_rtt}
	if out.Congestion, err = unix.GetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
		out.err = os.NewSyscallError("getsockopt TCP_CONGESTION", err)
	}
	return out
}

// send connects and writes until the time is over.
func (s *sender) send() error {
	timeout := unix.NsecToTimeval(int64(connectWait))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt SO_SNDTIMEO", err)
	}
	if err := unix.Connect(s.fd, &unix.SockaddrInet4{Addr: s.Address.As4(), Port: int(s.Port)}); err != nil {
		return fmt.Errorf("connecting to %s: %w", s.Address, err)
	}
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	binary.BigEndian.PutUint64(s.buf[0:], uint64(s.number))
	binary.BigEndian.PutUint64(s.buf[8:], uint64(s.start))
	binary.BigEndian.PutUint64(s.buf[16:], uint64(s.Time))
	for end := s.start + int64(s.Time); ; {
		now := child.Monotonic()
		if now >= end {
			return nil
		}
		n, err := unix.Write(s.fd, s.due())
		switch {
		case errors.Is(err, unix.EAGAIN):
			err = child.Wait(s.fd, unix.POLLOUT, end-now)
		case errors.Is(err, unix.EINTR):
			err = nil
		case err == nil:
			s.sent += uint64(n)
		}
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
}

// due is what is to be written next. The header is the start of the first buffer and is not sent again.
func (s *sender) due() []byte {
	if s.sent < headerSize {
		return s.buf[s.sent:]
	}
	return s.buf[:]
}
