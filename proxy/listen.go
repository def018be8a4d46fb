// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/outlive"
)

// acceptTurn bounds one wait for a connection: each turn shows that the loop is alive.
const acceptTurn = time.Second

// stuckAfter is how long a loop may go without a turn.
const stuckAfter = 3 * time.Second

// listener is one of the engine's listening sockets.
type listener struct {
	*net.TCPListener
	family int // 4 or 6: steered connections come here; 0: peers do
	turn   atomic.Int64
	spare  *os.File                  // a descriptor for when there are no others
	handle func(*net.TCPConn) func() // takes a connection, in the order of arrival; the rest of the work is returned
}

// turnAway resets those who wait to be accepted when there are no descriptors, in the room of the spare one. They would
// wait for as long as the connections last that hold the others.
func (l *listener) turnAway() {
	l.spare.Close()
	l.SetDeadline(time.Now().Add(acceptTurn / 100))
	for conn, err := l.AcceptTCP(); err == nil; conn, err = l.AcceptTCP() {
		conn.Close()
	}
	l.spare, _ = os.Open(os.DevNull)
}

func (l *listener) stamp()       { l.turn.Store(time.Now().UnixNano()) }
func (l *listener) port() uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// listen opens the listeners on loopback and the one for peers.
func (e *Engine) listen() error {
	for _, f := range []struct {
		family  int
		address string
	}{{4, "127.0.0.1:0"}, {6, "[::1]:0"}} {
		l, err := open(f.address, net.KeepAliveConfig{}, func(fd int) error { return errors.Join(setCarried(fd), setRcvbuf(fd, steeredRcvbuf)) })
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			e.cfg.Log.Warn("loopback lacks an address, so this family's connections are not steered", "address", f.address)
			continue
		}
		if err != nil {
			return fmt.Errorf("listening for steered connections on %s: %w", f.address, err)
		}
		e.listeners = append(e.listeners, &listener{TCPListener: l, family: f.family, handle: e.near})
	}
	if e.cfg.Listen == "" {
		return nil
	}
	l, err := open(e.cfg.Listen, legKeepAlive, func(int) error { return nil })
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("listening for peers on %s: the port is taken: change `listen`, or stop what uses it (ss -ltnp)", e.cfg.Listen)
	}
	if err != nil {
		return fmt.Errorf("listening for peers on %s: %w", e.cfg.Listen, err)
	}
	e.listeners = append(e.listeners, &listener{TCPListener: l, handle: func(c *net.TCPConn) func() { return func() { e.acceptPeer(c) } }})
	return nil
}

// holdOn has the listeners that connections are steered to outlive the hooks, should the process be killed.
func (e *Engine) holdOn() {
	var steered []syscall.RawConn
	for _, l := range e.listeners {
		if l.family == 0 {
			continue
		}
		if raw, rawErr := l.SyscallConn(); rawErr == nil { // fails only when closed
			steered = append(steered, raw)
		}
	}
	hold, err := outlive.Keep(steered)
	e.last = hold
	if err != nil {
		e.cfg.Log.Warn("connections that begin in the instant of the agent's death, should it be killed, may be refused", "why", err)
	}
}

func open(address string, keepAlive net.KeepAliveConfig, setup func(fd int) error) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1, KeepAliveConfig: keepAlive}
	lc.SetMultipathTCP(false)
	lc.Control = func(_, _ string, raw syscall.RawConn) error { return rawControl(raw, setup) }
	l, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// accept takes connections until the listener is closed.
func (e *Engine) accept(l *listener) {
	l.spare, _ = os.Open(os.DevNull)
	defer func() { l.spare.Close() }()
	for {
		l.SetDeadline(time.Now().Add(acceptTurn))
		conn, err := l.AcceptTCP()
		switch {
		case err == nil:
			if !e.startWork() {
				conn.Close()
				return
			}
			work := l.handle(conn)
			go func() {
				defer e.wg.Done()
				work()
			}()
		case errors.Is(err, net.ErrClosed):
			return
		case !errors.Is(err, os.ErrDeadlineExceeded):
			// Out of descriptors, most likely. The loop is not alive in this state: new connections should go direct.
			e.limited.warn("accepting a connection failed", "listener", l.Addr(), "err", err)
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				l.turnAway()
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		l.stamp()
	}
}

// Alive reports whether all loops that accept connections still turn.
func (e *Engine) Alive() bool {
	e.mu.Lock()
	running := e.running && !e.closed
	e.mu.Unlock()
	for _, l := range e.listeners {
		if time.Since(time.Unix(0, l.turn.Load())) > stuckAfter {
			return false
		}
	}
	return running
}

// Ports returns the ports on 127.0.0.1 and ::1 to which connections are to be steered, and the one for peers; 0: none.
func (e *Engine) Ports() (port4, port6, peer uint16) {
	for _, l := range e.listeners {
		switch l.family {
		case 4:
			port4 = l.port()
		case 6:
			port6 = l.port()
		default:
			peer = l.port()
		}
	}
	return port4, port6, peer
}

func (e *Engine) listenPorts() []uint16 {
	ports := make([]uint16, 0, len(e.listeners))
	for _, l := range e.listeners {
		ports = append(ports, l.port())
	}
	return ports
}
