// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/internal/testkit"
)

func at(addr string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
}

// writeRandomly writes data in pieces of random size, then ends.
func writeRandomly(c *net.TCPConn, data []byte, seed uint64) error {
	r := mrand.New(mrand.NewPCG(seed, 2))
	for len(data) > 0 {
		n := min(len(data), 1+r.IntN(1<<(r.IntN(20)+1)))
		if _, err := c.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return c.CloseWrite()
}

func TestEchoExact(t *testing.T) {
	w := newWorld(t, nil)
	for _, address := range []string{serverAddr, serverAddr6} {
		t.Run(address, func(t *testing.T) {
			if address == serverAddr6 {
				testkit.NeedIPv6(t)
			}
			dst := serve(t, address, echo)
			for _, n := range []int{0, 1, 100, 4096, 70_000, 1 << 20, int(testkit.Size(5_000_000, 2_000_000))} {
				t.Run(fmt.Sprint(n), func(t *testing.T) { w.echoExact(t, dst, n) })
			}
		})
	}
	if s := w.far.Peers()[0]; s.RawReceived == 0 {
		t.Fatal("nothing went through the peer")
	}
}

func (w *world) echoExact(t *testing.T, dst netip.AddrPort, n int) {
	data := mixed(n, uint64(n))
	c := w.steer(dst)
	sent := make(chan error, 1)
	go func() { sent <- writeRandomly(c, data, 1) }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	if err := <-sent; err != nil {
		t.Fatalf("writing: %v", err)
	}
}

func TestBulkAndRepeat(t *testing.T) {
	w := newWorld(t, nil)
	data := mixed(int(testkit.Size(64<<20, 8<<20)), 3)
	want := sha256.Sum256(data)
	dst := serve(t, serverAddr, func(c *net.TCPConn) { c.Write(data); c.CloseWrite(); io.Copy(io.Discard, c) })
	wire := make([]int64, 0, 2)
	for i := range 2 {
		before := w.near.Peers()[0].WireReceived
		start := time.Now()
		h := sha256.New()
		n, err := io.Copy(h, w.steer(dst))
		if err != nil || [32]byte(h.Sum(nil)) != want {
			t.Fatalf("run %d: %d bytes, %v", i, n, err)
		}
		wire = append(wire, w.near.Peers()[0].WireReceived-before)
		t.Logf("run %d: %d raw bytes, %d on the wire, %v", i, n, wire[i], time.Since(start))
	}
	if wire[1]*100 > int64(len(data)) {
		t.Errorf("the repeat took %d bytes", wire[1])
	}
}

func TestHalfCloseByServer(t *testing.T) {
	w := newWorld(t, nil)
	var got []byte
	done := make(chan struct{})
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		c.Write([]byte("hello"))
		c.CloseWrite()
		got, _ = io.ReadAll(c)
		close(done)
	})
	c := w.steer(dst)
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Fatalf("%q, %v", b, err)
	}
	time.Sleep(50 * time.Millisecond)
	data := mixed(3<<20, 1)
	if err := writeRandomly(c, data, 4); err != nil {
		t.Fatal(err)
	}
	<-done
	if !bytes.Equal(got, data) {
		t.Fatalf("server got %d of %d bytes", len(got), len(data))
	}
}

func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) }

// abort closes a connection with a reset.
func abort(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func TestResetByApplication(t *testing.T) {
	w := newWorld(t, nil)
	ended := make(chan error, 1)
	ready := make(chan struct{}, 1)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		b := make([]byte, 5)
		io.ReadFull(c, b)
		ready <- struct{}{}
		_, err := io.ReadAll(c)
		ended <- err
	})
	for _, half := range []bool{false, true} {
		c := w.steer(dst)
		c.Write([]byte("12345"))
		<-ready
		if half { // the server sees the end first, then nothing: it is not reading any more
			c.CloseWrite()
			if err := <-ended; err != nil {
				t.Fatalf("half close: %v", err)
			}
		}
		abort(c)
		if half {
			continue
		}
		select {
		case err := <-ended:
			if !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("server saw %v", err)
			}
		case <-time.After(testkit.Wait(20 * time.Second)):
			t.Fatal("server saw nothing")
		}
	}
	waitFor(t, "flows end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
}

func TestResetByServer(t *testing.T) {
	w := newWorld(t, nil)
	data := mixed(300_000, 9)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 5))
		c.Write(data)
		raw, _ := c.SyscallConn()
		(&sock{TCPConn: c, raw: raw}).settle(testkit.Wait(20 * time.Second)) // a reset destroys what has not been sent
		abort(c)
	})
	c := w.steer(dst)
	c.Write([]byte("12345"))
	got, err := io.ReadAll(c)
	if !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("client saw %v after %d bytes", err, len(got))
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("client got %d of the %d bytes before the reset", len(got), len(data))
	}
}

// TestEarlyAnswer: a server may answer and close without reading all; the answer arrives, then the writes fail.
func TestEarlyAnswer(t *testing.T) {
	w := newWorld(t, nil)
	dst := serve(t, serverAddr, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 5))
		c.Write([]byte("413 too large"))
	})
	c := w.steer(dst)
	fail := make(chan error, 1)
	go func() {
		junk := make([]byte, 64<<10)
		for {
			if _, err := c.Write(junk); err != nil {
				fail <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	got := make([]byte, 13)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "413 too large" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := <-fail; !isReset(err) {
		t.Fatalf("writing: %v", err)
	}
}

func TestDialRefused(t *testing.T) {
	w := newWorld(t, nil)
	l, err := net.Listen("tcp", serverAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	dst := addrPort(l.Addr())
	l.Close()
	for _, write := range []bool{false, true} {
		if c := w.steerOrReset(dst); c != nil {
			if write {
				c.Write([]byte("hello"))
			}
			if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("write %v: client saw %v", write, err)
			}
		}
		if r := w.near.kernel.bypassed(dst); r != reason.DialFailed {
			t.Fatalf("bypass for %v", r)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	w := newWorld(t, nil)
	dst := serve(t, otherAddr, func(c *net.TCPConn) { c.Write([]byte("hello")); echo(c) })
	c := w.steer(dst)
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil { // nothing sent yet: it goes direct
		t.Fatal(err)
	}
	if r := w.near.kernel.bypassed(dst); r != reason.NotAllowed {
		t.Fatalf("bypass for %v", r)
	}
	c.Write([]byte("more"))
	c.CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "more" {
		t.Fatalf("%q, %v", rest, err)
	}
	c = w.steer(dst)
	c.Write([]byte("x"))
	c.CloseWrite()
	// Sent to the peer: only a reset is left. If the refusal was faster, it is a direct connection.
	if got, err := io.ReadAll(c); err == nil && string(got) != "hellox" {
		t.Fatalf("clean end after %q", got)
	}
	// Loopback is never reachable, even though `allow` says all.
	local := serve(t, "127.0.0.1", echo)
	w.steer(local)
	waitFor(t, "refusal", 20*time.Second, func() bool { return w.near.kernel.bypassed(local) == reason.NotAllowed })
	if n := w.far.Peers()[0].FlowsAccepted; n != 0 {
		t.Fatalf("%d destinations were dialled that are not allowed", n)
	}
}

func TestNoOriginal(t *testing.T) {
	w := newWorld(t, nil)
	port4, _, _ := w.near.Ports()
	c, err := net.Dial("tcp", at("127.0.0.1", port4).String())
	if errors.Is(err, unix.ECONNRESET) {
		return // it was faster than the dial
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("%v", err)
	}
}

func TestInteractive(t *testing.T) {
	w := newWorld(t, nil)
	c := w.steer(serve(t, serverAddr, echo))
	msg := bytes.Repeat([]byte("x"), 100)
	buf := make([]byte, 100)
	var worst, sum time.Duration
	for i := range 300 {
		start := time.Now()
		c.Write(msg)
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
		d := time.Since(start)
		worst, sum = max(worst, d), sum+d
		_ = i
	}
	t.Logf("100-byte echo: mean %v, worst %v", sum/300, worst)
	if sum/300 > testkit.Wait(20*time.Millisecond) {
		t.Errorf("an exchange waits: mean %v", sum/300)
	}
}

func TestManyFlows(t *testing.T) {
	w := newWorld(t, patient)
	dst := serve(t, serverAddr, echo)
	flows := testkit.Count(1000, 100)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range flows {
		wg.Go(func() {
			<-start
			data := mixed(20_000, uint64(i))
			c, err := w.trySteer(dst)
			if err != nil {
				t.Errorf("flow %d: %v", i, err)
				return
			}
			defer c.Close()
			go writeRandomly(c, data, uint64(i))
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("flow %d: %d of %d bytes, %v", i, len(got), len(data), err)
			}
		})
	}
	began := time.Now()
	close(start)
	wg.Wait()
	t.Logf("%d flows in %v", flows, time.Since(began))
	waitFor(t, "flows end", 20*time.Second, func() bool { return w.near.live()+w.far.live() == 0 })
	if n := w.far.Peers()[0].RawReceived; n < int64(flows)*20_000 {
		t.Errorf("only %d bytes went through the peer", n)
	}
}
