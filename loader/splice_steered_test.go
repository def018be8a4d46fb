// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/loader/internal/testenv"
	"github.com/trunkline/trunkline/loader/policy"
)

// steeredWorld is a loader with an engine's listeners, in a network whose far side is beyond a router.
type steeredWorld struct {
	*Loader
	ln4, ln6 *net.TCPListener
}

func newSteeredWorld(t *testing.T, mode policy.SpliceMode) *steeredWorld {
	t.Helper()
	l, err := Load(t.Context(), Options{Cgroup: testenv.Cgroup(), Rules: spliceRules(mode)})
	must(t, err)
	w := &steeredWorld{Loader: l}
	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan error, 1)
	go func() { running <- l.Run(ctx, func() bool { return true }) }()
	t.Cleanup(func() {
		cancel()
		<-running
		must(t, l.Close())
	})
	w.ln4 = engineListener(t, "127.0.0.1:0")
	engine := Engine{Port4: addrPort(w.ln4.Addr()).Port()}
	if testkit.IPv6() == nil {
		w.ln6 = engineListener(t, "[::1]:0")
		engine.Port6 = addrPort(w.ln6.Addr()).Port()
	}
	must(t, l.SetEngine(engine))
	l.SetPeer(1, true)
	return w
}

func spliceRules(mode policy.SpliceMode) []policy.Rule {
	return []policy.Rule{
		{ID: 1, Name: "four", Remote: netip.MustParsePrefix("10.2.0.0/16"), PeerID: 1, Splice: mode},
		{ID: 2, Name: "six", Remote: netip.MustParsePrefix("fd02::/16"), PeerID: 1, Splice: mode},
	}
}

func engineListener(t *testing.T, addr string) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	lc.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { // as the engine's own: whatever ends it, ends in a reset
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
	ln, err := lc.Listen(t.Context(), "tcp", addr)
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

// take accepts the connection that was just made and checks that it was steered.
func (w *steeredWorld) take(t *testing.T, ln *net.TCPListener, app *net.TCPConn) *splicePair {
	t.Helper()
	p := &splicePair{app: app, eng: w.accept(t, ln)}
	t.Cleanup(p.close)
	_ = p.app.SetDeadline(time.Now().Add(testkit.Wait(20 * time.Second)))
	return p
}

func (w *steeredWorld) accept(t *testing.T, ln *net.TCPListener) *net.TCPConn {
	t.Helper()
	_ = ln.SetDeadline(time.Now().Add(testkit.Wait(5 * time.Second)))
	eng, err := ln.AcceptTCP()
	must(t, err)
	t.Cleanup(func() { _ = eng.Close() })
	_ = eng.SetDeadline(time.Now().Add(testkit.Wait(20 * time.Second)))
	if _, ok := w.TakeOriginal(addrPort(eng.RemoteAddr())); !ok {
		t.Fatal("the connection came without an original destination")
	}
	return eng
}

func (w *steeredWorld) dial(t *testing.T, to string) *splicePair {
	t.Helper()
	c, err := net.DialTimeout("tcp", to, testkit.Wait(5*time.Second))
	must(t, err)
	ln := w.ln4
	if strings.HasPrefix(to, "[") {
		ln = w.ln6
	}
	return w.take(t, ln, c.(*net.TCPConn))
}

func (w *steeredWorld) counts(t *testing.T) bpf.SpliceCount {
	t.Helper()
	n, err := w.SpliceCounts()
	must(t, err)
	return n
}

const (
	steered4 = testenv.Far4 + ":7"
	steered6 = "[" + testenv.Far6 + "]:7"
)

// TestSpliceSteered: steered connections take the fast path by the sockops program, whatever the application's socket.
func TestSpliceSteered(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	testenv.NewWorld(t)
	w := newSteeredWorld(t, policy.SpliceForce)
	need(t, w.Loader, "splice") // forced, so on wherever there is a sockmap
	connect := map[string]func(t *testing.T) *splicePair{
		"IPv4": func(t *testing.T) *splicePair { return w.dial(t, steered4) },
		"IPv6": func(t *testing.T) *splicePair { return w.dial(t, steered6) },
		"IPv4 of an IPv6 socket": func(t *testing.T) *splicePair {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			must(t, err)
			to := &unix.SockaddrInet6{Port: 7}
			to.Addr = netip.MustParseAddr("::ffff:" + testenv.Far4).As16()
			must(t, unix.Connect(fd, to))
			return w.take(t, w.ln4, connFromFD(t, fd))
		},
		"bound to an address": func(t *testing.T) *splicePair {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(testenv.NearLink4)}, Timeout: testkit.Wait(5 * time.Second)}
			c, err := d.Dial("tcp", steered4)
			must(t, err)
			return w.take(t, w.ln4, c.(*net.TCPConn))
		},
	}
	for name, dial := range connect {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "IPv6") {
				testkit.NeedIPv6(t)
			}
			before := w.counts(t)
			p := dial(t)
			must(t, exchange(p.app, p.eng, []byte("request")))
			must(t, exchange(p.eng, p.app, []byte("answer")))
			after := w.counts(t)
			if after.Entered-before.Entered != 1 || after.Redirected-before.Redirected != 1 || after.Absent != before.Absent {
				t.Errorf("before %+v, after %+v", before, after)
			}
			w.SpliceDone(addrPort(p.eng.RemoteAddr()))
			must(t, checkFionread(p))
			must(t, exchange(p.app, p.eng, []byte("by plain TCP")))
			if n := w.counts(t); n.Redirected != after.Redirected {
				t.Errorf("redirected after SpliceDone: %+v", n)
			}
			w.SpliceDone(addrPort(p.eng.RemoteAddr())) // once more does no harm
		})
	}
	t.Run("again", w.testAgain)
	t.Run("bytes", w.testBytes)
	t.Run("nothing is left", w.testNothingLeft)
}

// testAgain: a port, or the very socket, connects again while the engine has yet to read from the connection before. Each
// connection's bytes stay its own.
func (w *steeredWorld) testAgain(t *testing.T) {
	from := &unix.SockaddrInet4{Port: 7777}
	to := &unix.SockaddrInet4{Port: 7, Addr: netip.MustParseAddr(testenv.Far4).As4()}
	// A reset, then the same port by another socket.
	reuse := func(t *testing.T, fd int) int {
		must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		must(t, unix.Close(fd))
		return boundSocket(t, from)
	}
	// The same socket, without its connection.
	disconnect := func(t *testing.T, fd int) int {
		unspec := make([]byte, 16)
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec[0])), 16)
		if errno != 0 {
			t.Fatal(errno)
		}
		return fd
	}
	for name, again := range map[string]func(*testing.T, int) int{"port": reuse, "socket": disconnect} {
		t.Run(name, func(t *testing.T) {
			before := w.counts(t)
			fd := boundSocket(t, from)
			must(t, unix.Connect(fd, to))
			eng1 := w.accept(t, w.ln4)
			_, err := unix.Write(fd, []byte("first connection"))
			must(t, err)
			fd = again(t, fd)
			must(t, unix.Connect(fd, to))
			p := w.take(t, w.ln4, connFromFD(t, fd))
			must(t, exchange(p.app, p.eng, []byte("second connection")))
			got, err := io.ReadAll(eng1)
			if string(got) != "first connection" || !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%q came by the first (%v)", got, err)
			}
			if n := w.counts(t); n.Redirected-before.Redirected < 1 {
				t.Errorf("nothing was redirected: %+v", n)
			}
			_ = p.app.SetLinger(0)
		})
	}
}

func boundSocket(t *testing.T, from unix.Sockaddr) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	must(t, err)
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must(t, unix.Bind(fd, from))
	return fd
}

// TestSpliceAbsent: without sockmap in the kernel the rest of sockops loads, and no rule asks for what is not there.
func TestSpliceAbsent(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	testenv.NewWorld(t)
	w := newSteeredWorld(t, policy.SpliceForce)
	w.splice = spliceState{detail: "no sockhash"}
	must(t, w.Apply(spliceRules(policy.SpliceForce), nil))
	if f := w.spliceFeature(w.o.Rules); f.On || f.Detail != "no sockhash" {
		t.Errorf("feature %+v", f)
	}
	coll, err := w.loadSockops()
	must(t, err)
	for name := range coll.Maps {
		if slices.Contains([]string{"tl_apps", "tl_engs", "tl_due", "tl_spliced"}, name) {
			t.Errorf("sockops wants the map %s", name)
		}
	}
	before := w.counts(t)
	p := w.dial(t, steered4)
	must(t, exchange(p.app, p.eng, []byte("request")))
	if n := w.counts(t); n != before {
		t.Errorf("before %+v, after %+v", before, n)
	}
}

// TestSpliceClose: a loader that goes before the engine takes no byte along.
func TestSpliceClose(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	testenv.NewWorld(t)
	w := newSteeredWorld(t, policy.SpliceForce)
	p := w.dial(t, steered4)
	write(t, p.app, "redirected ")
	if w.splice.ready && w.counts(t).Redirected == 0 {
		t.Error("nothing was redirected")
	}
	must(t, w.Close())
	time.Sleep(testkit.Wait(300 * time.Millisecond)) // the kernel frees maps later
	write(t, p.app, "plain")
	must(t, p.app.CloseWrite())
	got, err := io.ReadAll(p.eng)
	if err != nil || string(got) != "redirected plain" {
		t.Errorf("%q came (%v)", got, err)
	}
}

// testBytes: many steered connections at once, some released on the way.
func (w *steeredWorld) testBytes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 40)
	to := []string{steered4, steered6}
	if w.ln6 == nil {
		to = to[:1]
	}
	for i := range testkit.Count(300, 60) {
		slots <- struct{}{}
		p := w.dial(t, to[i%len(to)])
		wg.Go(func() {
			defer func() { <-slots }()
			defer p.close()
			release := func() error { w.SpliceDone(addrPort(p.eng.RemoteAddr())); return nil }
			if i%3 != 0 {
				release = nil
			}
			if err := spliceTransfer(p, seed+uint64(i), release); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%+v", w.counts(t))
}

// testNothingLeft: closed connections are in no map.
func (w *steeredWorld) testNothingLeft(t *testing.T) {
	for _, name := range []string{"tl_apps", "tl_engs", "tl_due"} {
		eventually(t, "nothing is left in "+name, func() bool { return emptyMap(w.maps[name]) })
	}
}

// TestSpliceModes: the rule's word and the self-test decide together, and the feature says what came of it.
func TestSpliceModes(t *testing.T) {
	if !testenv.Isolated(t) {
		return
	}
	testenv.NewWorld(t)
	w := newSteeredWorld(t, policy.SpliceAuto)
	if !w.splice.ready {
		testkit.NeedFeature(t, "splice", errors.New(w.splice.detail))
	}
	healthy := error(nil)
	faulty := &SpliceTestError{[]SpliceFailure{{"fionread", errors.New("1000 bytes are waiting, the kernel says 0")}}}
	tests := []struct {
		mode     policy.SpliceMode
		selfTest error
		entered  uint64
		feature  Feature
	}{
		{policy.SpliceAuto, healthy, 1, Feature{On: true, Detail: "sockmap passed the self-test"}},
		{policy.SpliceForce, healthy, 1, Feature{On: true, Detail: "sockmap passed the self-test"}},
		{policy.SpliceOff, healthy, 0, Feature{On: true, Detail: "sockmap passed the self-test"}},
		{policy.SpliceAuto, faulty, 0, Feature{Detail: "self-test-failed: fionread: "}},
		{policy.SpliceForce, faulty, 1, Feature{On: true, Detail: "forced for 2 rule(s), off for others; self-test-failed: fionread: "}},
		{policy.SpliceOff, faulty, 0, Feature{Detail: "self-test-failed: fionread: "}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v, self-test %v", tt.mode, tt.selfTest == nil), func(t *testing.T) {
			w.splice.selfTest = tt.selfTest
			must(t, w.Apply(spliceRules(tt.mode), nil))
			before := w.counts(t)
			p := w.dial(t, steered4)
			must(t, exchange(p.app, p.eng, []byte("request")))
			if n := w.counts(t).Entered - before.Entered; n != tt.entered {
				t.Errorf("%d connections entered, want %d", n, tt.entered)
			}
			for _, f := range w.Features() {
				if f.Name == "splice" && (f.On != tt.feature.On || !strings.HasPrefix(f.Detail, tt.feature.Detail)) {
					t.Errorf("feature %+v, want %+v", f, tt.feature)
				}
			}
		})
	}
}
