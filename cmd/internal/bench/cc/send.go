// SPDX-License-Identifier: Apache-2.0

package cc

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

// SendCommand is the hidden command by which the executable is a sender.
const SendCommand = "bench-cc-send" // bench-cc-send ORDER

// order is what a sender is told, as JSON.
type order struct {
	Address    netip.Addr    `json:"address"`
	Port       uint16        `json:"port"`
	Congestion string        `json:"congestion"` // "": what the socket gets without asking
	Flows      int           `json:"flows"`
	FirstID    uint32        `json:"first_id"` // of the flows, by which the receiver knows them
	Time       time.Duration `json:"time"`     // 0: bytes count
	Bytes      uint64        `json:"bytes"`    // of each flow; 0: time counts
	Sample     time.Duration `json:"sample"`
}

// sent is what a flow did, as its sender saw it.
type sent struct {
	ID           uint32   `json:"id"`
	Congestion   string   `json:"congestion"` // at the end
	First        string   `json:"first"`      // right after the connect
	StartNs      int64    `json:"start_ns"`   // of the monotonic clock, before the connect
	Bytes        uint64   `json:"bytes"`      // given to the socket
	Retransmits  uint64   `json:"retransmits"`
	RTOs         int      `json:"rtos"`          // -1: this kernel does not count them
	RwndUs       uint64   `json:"rwnd_us"`       // held up by the receiver's window
	SndbufUs     uint64   `json:"sndbuf_us"`     // held up by the send buffer
	Samples      []sample `json:"samples"`       //
	SegmentBytes uint32   `json:"segment_bytes"` // MSS
	MinRTTUs     uint32   `json:"min_rtt_us"`    // of the flow

	err error // then nothing else holds
}

// sample is a socket's figures at a time.
type sample struct {
	AtUs     int64  `json:"t"` // since the start
	Cwnd     uint32 `json:"w"` // packets
	Ssthresh uint32 `json:"s"` // packets
	SRTTUs   uint32 `json:"r"`
}

const (
	chunk = 64 << 10 // written and read at once
	// headerSize bytes begin every flow, and count like the others: id, start and duration for the receiver.
	headerSize  = 24
	connectWait = 30 * time.Second
	// finishWait is how long the last bytes may take after the last write.
	finishWait = 10 * time.Minute
)

// SendMain is the command SendCommand. It prepares the sockets, says ready, waits for a line, says connected with the first
// flow's connect and prints what the flows did, as one array.
func SendMain(args []string, stdin io.Reader, stdout io.Writer) error {
	var o order
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return fmt.Errorf("%s: reading the order: %w", SendCommand, err)
	}
	senders := make([]*sender, o.Flows)
	for i := range senders {
		s := &sender{order: &o, id: o.FirstID + uint32(i)}
		if err := s.prepare(); err != nil {
			return err
		}
		defer unix.Close(s.fd)
		senders[i] = s
	}
	fmt.Fprintln(stdout, "ready")
	if _, err := bufio.NewReader(stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the start: %w", err)
	}
	done := make(chan sent, len(senders))
	for i, s := range senders {
		connected := func() {}
		if i == 0 {
			connected = func() { fmt.Fprintln(stdout, "connected") }
		}
		go func() { done <- s.run(connected) }()
	}
	all := make([]sent, 0, len(senders))
	for range senders {
		s := <-done
		if s.err != nil {
			return s.err // the process ends, and the other flows with it
		}
		all = append(all, s)
	}
	return json.NewEncoder(stdout).Encode(all)
}

// sender is one flow. It sleeps in the kernel until it can write or a sample is due.
type sender struct {
	*order
	id    uint32
	fd    int
	start int64 // ns
	out   sent
	buf   [chunk]byte
}

// prepare makes the socket and sees to it that it has the algorithm: where the kernel has none of the name, or gives another,
// nothing that is measured would be what it is called.
func (s *sender) prepare() (err error) {
	if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err != nil {
		return os.NewSyscallError("socket", err)
	}
	// Whatever is not acknowledged in the end goes with the socket: it would still be on the path in the next run.
	if s.Time > 0 {
		if err := unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return os.NewSyscallError("setsockopt SO_LINGER", err)
		}
	}
	if s.Congestion == "" {
		return nil
	}
	if err := unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, s.Congestion); err != nil {
		return fmt.Errorf("giving a socket the congestion control %s: %w; `trunkline cc` lists what there is", s.Congestion, err)
	}
	return s.checkAlgorithm()
}

func (s *sender) checkAlgorithm() error {
	name, err := s.algorithm()
	if err == nil && s.Congestion != "" && name != s.Congestion {
		err = fmt.Errorf("the socket has the congestion control %s, not %s", name, s.Congestion)
	}
	return err
}

func (s *sender) algorithm() (string, error) {
	name, err := unix.GetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	return name, os.NewSyscallError("getsockopt TCP_CONGESTION", err)
}

func (s *sender) run(connected func()) sent {
	s.out.ID = s.id
	s.out.err = s.flow(connected)
	return s.out
}

func (s *sender) flow(connected func()) error {
	timeout := unix.NsecToTimeval(int64(connectWait))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return os.NewSyscallError("setsockopt SO_SNDTIMEO", err)
	}
	s.start = child.Monotonic()
	s.out.StartNs = s.start
	if err := unix.Connect(s.fd, &unix.SockaddrInet4{Addr: s.Address.As4(), Port: int(s.Port)}); err != nil {
		return fmt.Errorf("connecting to %s: %w", s.Address, err)
	}
	connected()
	var err error
	if s.out.First, err = s.algorithm(); err != nil {
		return err
	}
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if err := s.write(); err != nil {
		return err
	}
	return s.finish()
}

// write sends until the time is over or the bytes are given, and takes the samples.
func (s *sender) write() error {
	binary.BigEndian.PutUint64(s.buf[0:], uint64(s.id))
	binary.BigEndian.PutUint64(s.buf[8:], uint64(s.start))
	binary.BigEndian.PutUint64(s.buf[16:], uint64(s.Time))
	end, next := s.start+int64(s.Time), s.start
	if s.Time == 0 {
		end = 1<<63 - 1
	}
	for {
		now := child.Monotonic()
		if now >= end || s.Bytes > 0 && s.out.Bytes == s.Bytes {
			return nil
		}
		if now >= next {
			if err := s.sample(now); err != nil {
				return err
			}
			next = max(next+int64(s.Sample), now) // what was missed is not made good
		}
		n, err := unix.Write(s.fd, s.due())
		switch {
		case err == unix.EAGAIN:
			err = child.Wait(s.fd, unix.POLLOUT, min(next, end)-now)
		case err == unix.EINTR:
			err = nil
		case err == nil:
			s.sent(n)
		}
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
}

// due is what is to be written next. The header is the start of the first buffer and is not sent again.
func (s *sender) due() []byte {
	b := s.buf[:]
	if s.out.Bytes < headerSize {
		b = b[s.out.Bytes:]
	}
	if left := s.Bytes - s.out.Bytes; s.Bytes > 0 && left < uint64(len(b)) {
		b = b[:left]
	}
	return b
}

func (s *sender) sent(n int) { s.out.Bytes += uint64(max(n, 0)) }

// finish waits, where bytes count, until the receiver has them all, and reads the last figures.
func (s *sender) finish() error {
	if s.Time == 0 {
		if err := unix.Shutdown(s.fd, unix.SHUT_WR); err != nil {
			return os.NewSyscallError("shutdown", err)
		}
		if err := s.waitTaken(); err != nil {
			return err
		}
	}
	info, size, err := child.TCPInfo(s.fd)
	if err != nil {
		return err
	}
	s.out.Retransmits, s.out.RTOs = uint64(info.Total_retrans), -1
	if size >= child.RTOSize {
		s.out.RTOs = int(info.Total_rto)
	}
	s.out.RwndUs, s.out.SndbufUs = info.Rwnd_limited, info.Sndbuf_limited
	s.out.SegmentBytes, s.out.MinRTTUs = info.Snd_mss, info.Min_rtt
	if s.out.Congestion, err = s.algorithm(); err != nil {
		return err
	}
	return s.checkAlgorithm()
}

func (s *sender) waitTaken() error {
	for deadline := child.Monotonic() + int64(finishWait); ; {
		now := child.Monotonic()
		if now > deadline {
			return fmt.Errorf("the receiver has not taken everything %v after the last write", finishWait)
		}
		if err := s.sample(now); err != nil {
			return err
		}
		n, err := unix.Read(s.fd, s.buf[:1])
		switch {
		case err == nil && n == 0:
			return nil
		case errors.Is(err, unix.EAGAIN):
			err = child.Wait(s.fd, unix.POLLIN, int64(s.Sample))
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the receiver: %w", err)
		}
	}
}

func (s *sender) sample(now int64) error {
	info, _, err := child.TCPInfo(s.fd)
	if err != nil {
		return err
	}
	s.out.Samples = append(s.out.Samples, sample{AtUs: (now - s.start) / 1000, Cwnd: info.Snd_cwnd, Ssthresh: info.Snd_ssthresh,
		SRTTUs: info.Rtt})
	return nil
}
