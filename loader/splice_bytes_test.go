// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/internal/testkit"
)

func testBench(t *testing.T) *spliceBench {
	t.Helper()
	needSockmap(t)
	b, err := newSpliceBench()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

// testPair connects, and enters both ends unless told otherwise.
func testPair(t *testing.T, b *spliceBench, ln net.Listener, entered bool) *splicePair {
	t.Helper()
	p, err := b.connect(ln, time.Now().Add(testkit.Wait(20*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if entered {
		if err := p.enter(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// ending says how the application's end of a test connection finishes.
type ending int

const (
	endClose ending = iota
	endHalfClose
	endReset
	endings
)

// spliceTransfer sends what seed says over one pair: sizes from a byte to some MiB, readers that lag or stall, answers the
// other way. release is called once some bytes are through. It returns an error unless every byte came, in order, and the
// end was seen as what it was.
func spliceTransfer(p *splicePair, seed uint64, release func() error) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	total := 1 + rng.IntN(1<<(4+rng.IntN(18)))
	maxWrite := max(1<<rng.IntN(20), total/2000)
	lag := time.Duration(rng.IntN(3)) * time.Millisecond
	stall := time.Duration(rng.IntN(4)/3*rng.IntN(300)) * time.Millisecond
	end := ending(rng.IntN(int(endings)))
	want, got := sha256.New(), sha256.New()

	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, maxWrite)
		fillRandom(buf)
		for left := total; left > 0; {
			n := min(left, 1+rng.IntN(maxWrite))
			want.Write(buf[:n])
			if _, err := p.app.Write(buf[:n]); err != nil {
				sent <- fmt.Errorf("writing: %w", err)
				return
			}
			left -= n
		}
		sent <- p.finish(end)
	}()
	time.Sleep(stall)
	n, err := readSlowly(p.eng, got, lag, release)
	if werr := <-sent; werr != nil {
		return werr
	}
	if end == endReset {
		// What was queued may or may not be seen before a reset; an end must not.
		if !errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("reset after %d bytes, the reader sees %v", total, err)
		}
		return nil
	}
	if err != nil || n != total || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return fmt.Errorf("%d bytes sent, %d came (%v), equal: %v", total, n, err, bytes.Equal(got.Sum(nil), want.Sum(nil)))
	}
	if end == endHalfClose {
		return exchange(p.eng, p.app, []byte("answer after the half-close"))
	}
	return nil
}

func (p *splicePair) finish(e ending) error {
	switch e {
	case endReset:
		_ = p.app.SetLinger(0)
		return p.app.Close()
	case endHalfClose:
		return p.app.CloseWrite()
	}
	return p.app.Close()
}

// readSlowly reads to the end, pausing now and then.
func readSlowly(c net.Conn, to io.Writer, lag time.Duration, release func() error) (int, error) {
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := c.Read(buf)
		total += n
		_, _ = to.Write(buf[:n])
		if release != nil && total > 10_000 {
			if err := release(); err != nil {
				return total, err
			}
			release = nil
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		if rand.IntN(8) == 0 {
			time.Sleep(lag)
		}
	}
}

// TestSpliceBytes: whatever is written arrives exactly, over many connections at once, and each is bounded.
func TestSpliceBytes(t *testing.T) {
	b := testBench(t)
	const atOnce = 50
	conns := testkit.Count(500, 100)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range conns {
		slots <- struct{}{}
		p := testPair(t, b, b.listeners[i%len(b.listeners)], true)
		wg.Go(func() {
			defer func() { <-slots }()
			defer p.close()
			var release func() error
			if i%3 == 0 {
				release = p.release
			}
			if err := spliceTransfer(p, seed+uint64(i), release); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	n := benchCounts(t, b)
	t.Logf("%+v", n)
	if n.Redirected < uint64(conns/2) || n.Spent == 0 || n.Unfit != 0 || n.Absent != 0 {
		t.Errorf("the mix should use the fast path and end budgets, and nothing else: %+v", n)
	}
	if n.RedirectedBytes > uint64(conns*bpf.SpliceBytes) || n.Redirected > uint64(conns*bpf.SpliceMsgs) {
		t.Errorf("more was redirected than all budgets together: %+v", n)
	}
}

// release takes the application's end out of the map; its own close may have done so before.
func (p *splicePair) release() error {
	err := p.b.coll.Maps["tl_apps"].Delete(p.key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

func benchCounts(t *testing.T, b *spliceBench) bpf.SpliceCount {
	t.Helper()
	n, err := spliceCounts(b.coll.Maps["tl_spliced"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSpliceBound: a reader that stalls holds the writer up as on plain TCP, and the kernel holds no more redirected
// bytes or messages than the budget.
func TestSpliceBound(t *testing.T) {
	for _, size := range []int{1, 64, 4 << 10, 64 << 10} {
		t.Run(fmt.Sprintf("%d bytes a write", size), func(t *testing.T) {
			b := testBench(t)
			p := testPair(t, b, b.listeners[0], true)
			_ = p.app.SetWriteBuffer(64 << 10)
			_ = p.eng.SetReadBuffer(256 << 10)
			want, got := sha256.New(), sha256.New()
			buf := make([]byte, size)
			written := 0
			for written < 64<<20 {
				fillRandom(buf)
				_ = p.app.SetWriteDeadline(time.Now().Add(testkit.Wait(100 * time.Millisecond)))
				n, err := p.app.Write(buf)
				want.Write(buf[:n])
				written += n
				if err != nil {
					break
				}
				if size == 1 && written == 4*bpf.SpliceMsgs {
					break // a byte a segment fills no buffer soon
				}
			}
			s, err := p.state()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("the writer was held up after %d bytes; redirected %d in %d messages", written, s.SpliceBytes, s.SpliceMsgs)
			if s.Splice != bpf.SpliceOver || s.SpliceBytes > bpf.SpliceBytes || s.SpliceMsgs > bpf.SpliceMsgs {
				t.Errorf("budget not kept: %+v", s)
			}
			if written > 32<<20 {
				t.Errorf("the writer was not held up within %d bytes", written)
			}
			_ = p.app.CloseWrite()
			n, err := io.Copy(struct{ io.Writer }{got}, struct{ io.Reader }{p.eng})
			if err != nil || int(n) != written || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("%d bytes written, %d came: %v", written, n, err)
			}
		})
	}
}

// TestSpliceSticky: a first message that cannot be redirected keeps the whole connection plain, or later ones would
// overtake it.
func TestSpliceSticky(t *testing.T) {
	late := map[string]func(t *testing.T, p *splicePair){
		"target not there yet": func(t *testing.T, p *splicePair) {
			must(t, p.enterApp())
			write(t, p.app, "first ")
			must(t, p.enterEngine())
		},
		"first message before the map": func(t *testing.T, p *splicePair) {
			write(t, p.app, "first ")
			must(t, p.enter())
		},
		"first message read before the map": func(t *testing.T, p *splicePair) {
			write(t, p.app, "first ")
			time.Sleep(testkit.Wait(5 * time.Millisecond))
			must(t, p.enter())
		},
	}
	for name, begin := range late {
		t.Run(name, func(t *testing.T) {
			b := testBench(t)
			for _, ln := range b.listeners {
				p := testPair(t, b, ln, false)
				begin(t, p)
				write(t, p.app, "second ")
				write(t, p.app, "third")
				must(t, p.app.CloseWrite())
				got, err := io.ReadAll(p.eng)
				if err != nil || string(got) != "first second third" {
					t.Errorf("%s: %q came (%v)", ln.Addr(), got, err)
				}
				s, err := p.state()
				if err != nil || s.Splice != bpf.SpliceOver || s.SpliceMsgs != 0 {
					t.Errorf("%s: state %+v (%v)", ln.Addr(), s, err)
				}
			}
			if n := benchCounts(t, b); n.Redirected != 0 || n.Absent+n.Unfit != uint64(len(b.listeners)) {
				t.Errorf("counts %+v", n)
			}
		})
	}
}

// TestSpliceZerocopy: completions of redirected messages would never come, so such a socket stays plain.
func TestSpliceZerocopy(t *testing.T) {
	b := testBench(t)
	p := testPair(t, b, b.listeners[0], true)
	must(t, withFD(p.app, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1) }))
	must(t, exchange(p.app, p.eng, []byte("first")))
	if n := benchCounts(t, b); n.Unfit != 1 || n.Redirected != 0 {
		t.Errorf("counts %+v", n)
	}
}

// TestSpliceReleaseInRecv: the application waits in recv(2), which holds on to the map's hooks, while it is taken out.
func TestSpliceReleaseInRecv(t *testing.T) {
	b := testBench(t)
	p := testPair(t, b, b.listeners[0], true)
	must(t, exchange(p.app, p.eng, []byte("request")))
	got := make(chan string, 1)
	file, err := p.app.File() // its descriptor blocks
	must(t, err)
	defer file.Close()
	must(t, unix.SetNonblock(int(file.Fd()), false))
	go func() {
		buf := make([]byte, 16)
		n, _, err := unix.Recvfrom(int(file.Fd()), buf, 0)
		got <- fmt.Sprint(string(buf[:max(n, 0)]), err)
	}()
	time.Sleep(testkit.Wait(20 * time.Millisecond))
	must(t, p.release())
	time.Sleep(testkit.Wait(20 * time.Millisecond))
	write(t, p.eng, "answer")
	select {
	case s := <-got:
		if s != "answer<nil>" {
			t.Errorf("recv returned %s", s)
		}
	case <-time.After(testkit.Wait(5 * time.Second)):
		t.Fatal("recv never returned")
	}
	must(t, unix.SetNonblock(int(file.Fd()), true))
	must(t, exchange(p.app, p.eng, []byte("by plain TCP")))
	must(t, checkFionread(p))
}

// TestSpliceMapped: an IPv4 connection of an IPv6 socket is the same connection to the engine.
func TestSpliceMapped(t *testing.T) {
	testkit.NeedIPv6(t)
	b := testBench(t)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	must(t, err)
	port := addrPort(b.listeners[0].Addr()).Port()
	to := &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	p := &splicePair{b: b, app: connFromFD(t, fd), id: b.nextID()}
	t.Cleanup(p.close)
	must(t, p.accept(b.listeners[0], time.Now().Add(testkit.Wait(time.Second))))
	p.key = bpf.SpliceKeyFrom(addrPort(p.app.LocalAddr()), port)
	must(t, p.enter())
	must(t, checkRedirect(p))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, c *net.TCPConn, s string) {
	t.Helper()
	if _, err := io.WriteString(struct{ io.Writer }{c}, s); err != nil {
		t.Fatal(err)
	}
}

// connFromFD takes a connected socket over.
func connFromFD(t *testing.T, fd int) *net.TCPConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}
