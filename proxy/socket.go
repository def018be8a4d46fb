// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// steeredRcvbuf, in bytes, holds four times what the sockmap may put in front of TCP's own data; with less, TCP throws away
// what arrives after the hand-over.
const steeredRcvbuf = 1 << 20

const legUserTimeout = 30 * time.Second

// legKeepAlive finds out that a peer is gone. The sockets at the ends of flows are never probed: the kernel of an
// application that has closed its connection forgets it after a while, and would answer with a reset although what the
// application sent is still on its way.
var legKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// sock is a TCP socket of the engine, known to the kernel side by its cookie while it is open.
type sock struct {
	*net.TCPConn
	raw    syscall.RawConn
	kernel Kernel
	cookie uint64
	once   sync.Once
}

func newSock(conn *net.TCPConn, kernel Kernel) (*sock, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("using a socket: %w", err)
	}
	s := &sock{TCPConn: conn, raw: raw, kernel: kernel}
	err = s.control(func(fd int) (err error) {
		s.cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return err
	})
	return s, err
}

func (s *sock) control(f func(fd int) error) error { return rawControl(s.raw, f) }

func rawControl(raw syscall.RawConn, f func(fd int) error) error {
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return fmt.Errorf("using a socket: %w", err)
	}
	return inner
}

// cutOff tells whether a socket that reads as ended, after so many bytes, was reset. A reset is reported once, to whichever
// call comes first; if that is a write, a read sees a clean end. The kernel counts a FIN as a byte received, so without one
// the count is no more than what was read. (Bytes that a sockmap redirected are not counted: a FIN with a reset behind it
// counts as a reset there.)
func cutOff(fd int, read int64) bool {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == unix.BPF_TCP_CLOSE && info.Bytes_received <= uint64(read)
}

// cutOff is the same for a socket that was read through its connection.
func (s *sock) cutOff(read int64) (cut bool) {
	_ = s.control(func(fd int) error { // fails if it is closed, and then nothing matters any more
		cut = cutOff(fd, read)
		return nil
	})
	return cut
}

// abort closes the socket with a reset: all sockets of flows have SO_LINGER {1, 0} until finish takes it away.
func (s *sock) abort() {
	s.SetLinger(0)
	s.close()
}

// finish closes the socket after a clean end. The kernel delivers what is still queued.
func (s *sock) finish() {
	s.SetLinger(-1)
	s.close()
}

func (s *sock) close() {
	s.once.Do(func() {
		s.Close()
		s.kernel.Disown(s.cookie)
	})
}

// remote returns the other end's address, IPv4 as IPv4.
func (s *sock) remote() netip.AddrPort { return addrPort(s.RemoteAddr()) }

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// dialOwn dials. The socket is entered as the agent's own before it connects, so that the connect hook lets it pass; setup
// may set options before that.
func dialOwn(ctx context.Context, kernel Kernel, address string, leg bool, setup func(fd int) error) (*sock, error) {
	var cookies []uint64
	d := net.Dialer{KeepAlive: -1}
	if leg {
		d.KeepAliveConfig = legKeepAlive
	}
	d.SetMultipathTCP(false)
	d.Control = func(_, _ string, raw syscall.RawConn) error {
		return rawControl(raw, func(fd int) error {
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			if err != nil {
				return fmt.Errorf("asking for a socket's cookie: %w", err)
			}
			cookies = append(cookies, cookie)
			if err := kernel.Own(cookie, 0, leg); err != nil {
				return fmt.Errorf("entering an own socket: %w", err)
			}
			return setup(fd)
		})
	}
	// One address after the other: with several at once the losers' cookies would be entered from other goroutines.
	d.FallbackDelay = -1
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		for _, c := range cookies {
			kernel.Disown(c)
		}
		return nil, err
	}
	s, err := newSock(conn.(*net.TCPConn), kernel)
	for _, c := range cookies {
		if err != nil || c != s.cookie {
			kernel.Disown(c)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// setReset makes closing the socket a reset, until that is taken back: whatever happens to this process, nobody mistakes
// it for a clean end. A listening socket gives it to those it accepts.
func setReset(fd int) error {
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 0})
}

// setCarried sets what the sockets at both ends of a flow have. Urgent data is read in its place: without that the kernel
// takes the urgent byte out of the stream, and it would be missing at the other end. That it was urgent is not carried on.
func setCarried(fd int) error {
	return errors.Join(setReset(fd), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
}

func setRcvbuf(fd, bytes int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes); err == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
}

// setLeg sets what every leg and control connection has.
func setLeg(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(legUserTimeout/time.Millisecond)),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, roomAtOnce))
}

func setPacing(fd int, bytesPerSecond uint64) error {
	return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
}

// socketError returns, and takes from the socket, the error that waits on it; nil for none.
func socketError(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: 0}}
	if n, err := unix.Poll(p, 0); err != nil || n == 0 || p[0].Revents&unix.POLLERR == 0 {
		return nil
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && v != 0 {
		return unix.Errno(v)
	}
	return unix.ECONNRESET
}

// unsent returns how many bytes the other end's kernel has not acknowledged yet.
func (s *sock) unsent() int {
	n := 0
	s.control(func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return n
}

func setCongestion(fd int, name string) error {
	if name == "" {
		return nil
	}
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Deadlines: past wakes whoever waits on a socket.
var (
	past       = time.Unix(1, 0)
	noDeadline time.Time
)

// settle waits until the other end's kernel has everything, at most for limit.
func (s *sock) settle(limit time.Duration) {
	for end := time.Now().Add(limit); s.unsent() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// watch waits, after the other end's last byte, for an error on the socket. It returns early, with another error, when
// the socket is closed or its read deadline passes.
func (s *sock) watch() error {
	var found error
	err := s.raw.Read(func(fd uintptr) bool {
		found = socketError(int(fd))
		return found != nil
	})
	if err != nil {
		return err
	}
	return found
}

// roundTrip returns the kernel's smoothed round-trip time of the connection, 0 if it is not known.
func (s *sock) roundTrip() time.Duration {
	var rtt time.Duration
	s.control(func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			rtt = time.Duration(info.Rtt) * time.Microsecond
		}
		return err
	})
	return rtt
}
