// SPDX-License-Identifier: Apache-2.0

package reserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prober measures the round-trip time to an end point.
type Prober interface {
	Probe(ctx context.Context, target netip.AddrPort) (time.Duration, error)
}

const (
	probeTimeout = 3 * time.Second
	probeTries   = 3 // of which the least counts
)

// TCPProber measures by connecting: what the kernel measured between SYN and SYN-ACK. A refusal is an answer, too.
type TCPProber struct {
	// Own enters a socket by its cookie before it connects, so that it is not steered; Disown forgets it.
	Own    func(cookie uint64) error
	Disown func(cookie uint64)
}

// Probe returns the least of three round-trip times, or an error if the first of them has no answer within 3 s.
func (p TCPProber) Probe(ctx context.Context, target netip.AddrPort) (time.Duration, error) {
	var least time.Duration
	for range probeTries {
		rtt, err := p.once(ctx, target)
		switch {
		case err != nil && least == 0:
			return 0, fmt.Errorf("probing %s: %w", target, err)
		case err != nil:
			return least, nil
		case least == 0 || rtt < least:
			least = rtt
		}
	}
	return least, nil
}

func (p TCPProber) once(ctx context.Context, target netip.AddrPort) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var cookie uint64
	var start time.Time
	d := net.Dialer{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		err := control(raw, func(fd int) (err error) {
			if cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
				return fmt.Errorf("asking for a socket's cookie: %w", err)
			}
			return p.Own(cookie)
		})
		start = time.Now()
		return err
	}}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", target.String())
	waited := time.Since(start)
	if cookie != 0 {
		defer p.Disown(cookie)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return waited, nil
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var measured time.Duration
	err = control(raw, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			measured = time.Duration(info.Rtt) * time.Microsecond
		}
		return err
	})
	if err != nil || measured == 0 {
		return waited, nil // later than the kernel saw it, and true all the same
	}
	return measured, nil
}

func control(raw syscall.RawConn, f func(fd int) error) error {
	var err error
	if ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); ctlErr != nil {
		return ctlErr
	}
	return err
}
