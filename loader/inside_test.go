// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// A test of sockets must run in a namespace and cgroup of its own with all of its threads. So it runs twice: outside it
// builds the lab, with services at site B, and starts the test binary again at site A; there it runs the test proper.
const insideEnv = "TRUNKLINE_TEST_INSIDE"

// The services at site B.
const (
	sinkPort = 7000 // reads to the end and answers how many bytes that were
	backPort = 7001 // reads a port and connects to it at site A, as a client of the sink's kind
	idlePort = 7002 // reads to the end and answers nothing
	hashPort = 7003 // reads to the end and answers the SHA-256 of it
)

// site is what the inner test knows of the lab.
type site struct {
	A4, A6, B4, B6 netip.Addr // IPv6 is invalid where the kernel has none
	Cgroup         string
}

// dests are the addresses of site B.
func (s site) dests() []netip.Addr {
	if !s.B6.IsValid() {
		return []netip.Addr{s.B4}
	}
	return []netip.Addr{s.B4, s.B6}
}

// within gives IPv6 rules only where there is IPv6.
func (s site) within(rules ...policy.Rule) []policy.Rule {
	return slices.DeleteFunc(rules, func(r policy.Rule) bool { return !r.Remote.IsValid() })
}

// inside runs body at site A and, when it has passed, after outside.
func inside(t *testing.T, o lab.Options, body func(t *testing.T, s site), after func(t *testing.T, l *lab.Lab)) {
	t.Helper()
	if v := os.Getenv(insideEnv); v != "" {
		var s site
		if err := json.Unmarshal([]byte(v), &s); err != nil {
			t.Fatal(err)
		}
		body(t, s)
		return
	}
	testkit.NeedRoot(t)
	if testkit.IPv6() != nil {
		o.NoIPv6 = true // a body that needs it asks for it
	}
	l, err := lab.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, a := range l.B.Addrs() {
		serveSite(t, l, a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Wait(2*time.Minute))
	defer cancel()
	cmd := l.A.Command(ctx, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	known, err := json.Marshal(site{l.A.Addr4, l.A.Addr6, l.B.Addr4, l.B.Addr6, l.A.CgroupPath})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), insideEnv+"="+string(known))
	out, err := l.A.Output(cmd)
	t.Logf("at site A:\n%s", out)
	if err != nil {
		t.Fatalf("at site A: %v", err)
	}
	testenv.SkipAs(t, out)
	if after != nil {
		after(t, l)
	}
}

func serveSite(t *testing.T, l *lab.Lab, a netip.Addr) {
	t.Helper()
	for port, handle := range map[uint16]func(net.Conn){
		sinkPort: sink,
		idlePort: func(c net.Conn) { io.Copy(io.Discard, c) },
		hashPort: hashSink,
		backPort: func(c net.Conn) { connectBack(l, c) },
	} {
		ln, err := l.B.Listen("tcp", netip.AddrPortFrom(a, port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); handle(c) }()
			}
		}()
	}
}

func sink(c net.Conn) {
	n, err := io.Copy(io.Discard, c)
	if err == nil {
		binary.Write(c, binary.BigEndian, n)
	}
}

func hashSink(c net.Conn) {
	h := sha256.New()
	if _, err := io.Copy(h, c); err == nil {
		c.Write(h.Sum(nil))
	}
}

// connectBack connects to the port that it is told, at the host that tells it, and drains what it gets there.
func connectBack(l *lab.Lab, c net.Conn) {
	var port uint16
	if err := binary.Read(c, binary.BigEndian, &port); err != nil {
		return
	}
	host := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	back, err := l.B.Dial(context.Background(), "tcp", netip.AddrPortFrom(host, port).String())
	if err != nil {
		return
	}
	defer back.Close()
	sink(back)
}

// loadAt loads at site A with these rules, and closes at the end of the test.
func loadAt(t *testing.T, s site, rules ...policy.Rule) *Loader {
	t.Helper()
	led, err := ledger.Open(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(t.Context(), Options{Instance: "test", Cgroup: s.Cgroup, Ledger: led, Rules: rules,
		Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := led.Entries(); len(left) > 0 {
			t.Errorf("left in the ledger: %v", left)
		}
		led.Close()
	})
	return l
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func dialAt(t *testing.T, a netip.Addr, port uint16) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(a, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// acceptAt listens at an address of site A and accepts the connection that site B makes to it.
func acceptAt(t *testing.T, s site, a netip.Addr, port uint16) *net.TCPConn {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(a, port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	b := s.B4
	if a.Is6() {
		b = s.B6
	}
	ask := dialAt(t, b, backPort)
	defer ask.Close()
	if err := binary.Write(ask, binary.BigEndian, port); err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// transfer writes n bytes, ends, and reads what the sink counted.
func transfer(t *testing.T, c *net.TCPConn, n int) {
	t.Helper()
	sendOnly(t, c, n)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var got int64
	if err := binary.Read(c, binary.BigEndian, &got); err != nil || got < int64(n) {
		t.Fatalf("the sink got %d of %d bytes: %v", got, n, err)
	}
}

func sendOnly(t *testing.T, c *net.TCPConn, n int) {
	t.Helper()
	b := make([]byte, 64<<10)
	for n > 0 {
		k, err := c.Write(b[:min(n, len(b))])
		if err != nil {
			t.Fatal(err)
		}
		n -= k
	}
}

// option runs f on the connection's descriptor.
func option[T any](t *testing.T, c *net.TCPConn, f func(fd int) (T, error)) T {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var v T
	cerr := raw.Control(func(fd uintptr) { v, err = f(int(fd)) })
	if cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return v
}

func congestionOf(t *testing.T, c *net.TCPConn) string {
	return option(t, c, func(fd int) (string, error) {
		s, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return strings.TrimRight(s, "\x00"), err
	})
}

func intOption(t *testing.T, c *net.TCPConn, level, opt int) int {
	return option(t, c, func(fd int) (int, error) { return unix.GetsockoptInt(fd, level, opt) })
}

// flowOf returns the telemetry of a connection, waiting a little for what ok asks of it.
func flowOf(t *testing.T, l *Loader, c *net.TCPConn, ok func(Flow) bool) Flow {
	t.Helper()
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	var last Flow
	for end := time.Now().Add(testkit.Wait(20 * time.Second)); time.Now().Before(end); {
		flows, err := l.Flows()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if f.Local == local {
				if last = f; ok(f) {
					return f
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no such telemetry of %s; last: %+v", local, last)
	return last
}
