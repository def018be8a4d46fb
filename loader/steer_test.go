// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
)

// What an application sees of a steered connection is what a direct one would show, in both families and for IPv4 through
// an IPv6 socket; what the engine is told is where it wanted to go.
func TestSteered(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	for _, c := range []struct {
		name        string
		family      int
		dst, bound  string
		peer, local string // as the application sees them
		engine      string
	}{
		{"ipv4", unix.AF_INET, testenv.Far4, "", "10.2.0.1:8080", "10.1.0.1", "engine 10.2.0.1:8080 10.1.0.1 rule 1"},
		{"mapped", unix.AF_INET6, testenv.Far4, "", "[::ffff:10.2.0.1]:8080", "::ffff:10.1.0.1", "engine 10.2.0.1:8080 10.1.0.1 rule 1"},
		{"ipv6", unix.AF_INET6, testenv.Far6, "", "[fd02::1]:8080", "fd01::1", "engine [fd02::1]:8080 fd01::1 rule 2"},
		{"ipv4 bound", unix.AF_INET, testenv.Far4, testenv.NearLink4, "10.2.0.1:8080", "10.1.0.1", "engine 10.2.0.1:8080 10.1.0.1 rule 1"},
		{"mapped bound", unix.AF_INET6, testenv.Far4, testenv.NearLink4, "[::ffff:10.2.0.1]:8080", "::ffff:10.1.0.1", "engine 10.2.0.1:8080 10.1.0.1 rule 1"},
		{"ipv6 bound", unix.AF_INET6, testenv.Far6, testenv.NearLink6, "[fd02::1]:8080", "fd01::1", "engine [fd02::1]:8080 fd01::1 rule 2"},
		{"ipv4 bound to any", unix.AF_INET, testenv.Far4, "0.0.0.0", "10.2.0.1:8080", "10.1.0.1", "engine 10.2.0.1:8080 10.1.0.1 rule 1"},
		{"nobody there", unix.AF_INET, "198.51.100.1", "", "198.51.100.1:8080", "10.1.0.1", "engine 198.51.100.1:8080 10.1.0.1 rule 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.family == unix.AF_INET6 {
				testkit.NeedIPv6(t)
			}
			var prepare []func(int) error
			if c.bound != "" {
				prepare = append(prepare, bind(c.family, c.bound))
			}
			cl := dial(t, c.family, c.dst, testPort, prepare...)
			if got := cl.line(t); got != c.engine {
				t.Fatalf("reached %q, want %q", got, c.engine)
			}
			if got := cl.peer(t); got != c.peer {
				t.Errorf("getpeername: %s, want %s", got, c.peer)
			}
			if got, port := cl.local(t); got != c.local || port == 0 {
				t.Errorf("getsockname: %s port %d, want %s", got, port, c.local)
			}
		})
	}
	if n := e.entries("tl_orig"); n != 0 {
		t.Errorf("%d original destinations are left", n)
	}
	if n := e.entries("tl_client"); n != 0 {
		t.Errorf("%d clients are left", n)
	}
}

func (e *steerEnv) entries(name string) int {
	e.t.Helper()
	n, m := 0, e.l.maps[name]
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&key, &value) {
		n++
	}
	if err := it.Err(); err != nil {
		e.t.Fatal(err)
	}
	return n
}

func TestNonBlockingConnect(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	newSteerEnv(t, nil)
	cl := dial(t, unix.AF_INET, testenv.Far4, testPort, func(fd int) error { return unix.SetNonblock(fd, true) })
	if cl.err != unix.EINPROGRESS {
		t.Fatalf("connect: %v, want EINPROGRESS", cl.err)
	}
	fds := []unix.PollFd{{Fd: int32(cl.fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(fds, int(testkit.Wait(5*time.Second).Milliseconds())); n != 1 || err != nil {
		t.Fatalf("poll: %d, %v", n, err)
	}
	if v, err := unix.GetsockoptInt(cl.fd, unix.SOL_SOCKET, unix.SO_ERROR); v != 0 || err != nil {
		t.Fatalf("SO_ERROR: %d, %v", v, err)
	}
	if got := cl.peer(t); got != "10.2.0.1:8080" {
		t.Errorf("getpeername: %s", got)
	}
	if err := unix.SetNonblock(cl.fd, false); err != nil {
		t.Fatal(err)
	}
	cl.err = nil
	if got := cl.line(t); got != "engine 10.2.0.1:8080 10.1.0.1 rule 1" {
		t.Errorf("reached %q", got)
	}
}

// A socket goes on to live after its steered connection: what it is shown must be what it is.
func TestSocketConnectsAgain(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	again := func(t *testing.T, cl *client, dst string, port uint16) {
		t.Helper()
		if err := unix.Connect(cl.fd, &unix.SockaddrInet4{}); err == nil {
			t.Fatal("connecting to 0.0.0.0:0 worked")
		}
		disconnect(t, cl.fd)
		cl.err = unix.Connect(cl.fd, sockaddr(unix.AF_INET, dst, port))
	}
	t.Run("to what is not steered", func(t *testing.T) {
		cl := dial(t, unix.AF_INET, testenv.Far4, testPort)
		if got := cl.line(t); got != "engine 10.2.0.1:8080 10.1.0.1 rule 1" {
			t.Fatalf("reached %q", got)
		}
		ln := listen(t, "127.0.0.1", 0)
		e.serve(ln, hello)
		again(t, cl, "127.0.0.1", portOf(ln))
		if got := cl.line(t); got != "hello" {
			t.Errorf("reached %q", got)
		}
		if got, want := cl.peer(t), fmt.Sprintf("127.0.0.1:%d", portOf(ln)); got != want {
			t.Errorf("getpeername: %s, want %s", got, want)
		}
		if got, _ := cl.local(t); got != "127.0.0.1" {
			t.Errorf("getsockname: %s", got)
		}
	})
	t.Run("steered again", func(t *testing.T) {
		cl := dial(t, unix.AF_INET, testenv.Far4, testPort)
		cl.line(t)
		again(t, cl, "10.2.0.9", testPort)
		if got := cl.line(t); got != "engine 10.2.0.9:8080 10.1.0.1 rule 1" {
			t.Errorf("reached %q", got)
		}
		if got := cl.peer(t); got != "10.2.0.9:8080" {
			t.Errorf("getpeername: %s", got)
		}
	})
}

// An application that writes and is gone before the engine accepts has delivered its bytes all the same.
func TestClientGoneBeforeAccept(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	ln := listen(t, "127.0.0.1", 0)
	if err := e.l.SetEngine(Engine{Port4: portOf(ln)}); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sockaddr(unix.AF_INET, testenv.Far4, testPort)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte("fire and forget")); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, ok := e.l.TakeOriginal(c.RemoteAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort())
	if !ok || o.Destination.String() != "10.2.0.1:8080" {
		t.Errorf("original %+v, %v", o, ok)
	}
	buf := make([]byte, 100)
	if n, err := c.Read(buf); string(buf[:n]) != "fire and forget" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

// With TCP_FASTOPEN_CONNECT the SYN waits for the first write, however long that takes.
func TestFastOpenConnect(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	// 4: data in the SYN without a cookie. Else the first connect() would only fetch one, and not wait.
	if err := ledger.WriteSysctl("net.ipv4.tcp_fastopen", "5"); err != nil {
		t.Fatal(err)
	}
	cl := dial(t, unix.AF_INET, testenv.Far4, testPort, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
	})
	if cl.err != nil {
		t.Fatal(cl.err)
	}
	if err := e.l.maps["tl_orig"].Delete(cookieOf(t, cl.fd)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	if _, err := unix.Write(cl.fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := cl.line(t); got != "engine 10.2.0.1:8080 10.1.0.1 rule 1" {
		t.Errorf("reached %q", got)
	}
	if got := cl.peer(t); got != "10.2.0.1:8080" {
		t.Errorf("getpeername: %s", got)
	}
}

// What connects to the engine without having been steered is nobody's.
func TestStrangerHasNoOriginal(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	e := newSteerEnv(t, nil)
	if got := dial(t, unix.AF_INET, "127.0.0.1", portOf(e.ln4)).line(t); got != "engine none" {
		t.Errorf("reached %q", got)
	}
}
