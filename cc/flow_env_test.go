// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/internal/testkit"
	"github.com/trunkline/trunkline/vmtest/lab"
)

// path is a link between two sites, and a server at the far one that answers with the hash of what it got.
type path struct {
	*lab.Lab
	t      testing.TB
	server string
}

func newPath(t testing.TB, o lab.Options) *path {
	t.Helper()
	testkit.NeedRoot(t)
	o.NoIPv6 = true
	l, err := lab.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	ln, err := l.B.Listen("tcp", netip.AddrPortFrom(l.B.Addr4, 0).String())
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
			go answer(c)
		}
	}()
	return &path{Lab: l, t: t, server: ln.Addr().String()}
}

func answer(c net.Conn) {
	defer c.Close()
	h := sha256.New()
	if _, err := io.Copy(h, c); err == nil {
		_, _ = c.Write(h.Sum(nil))
	}
}

// gso switches the sender's super-packets off, or on again.
func (p *path) gso(on bool) {
	p.t.Helper()
	segments := 1
	if on {
		segments = 65535
	}
	err := p.A.Do(func() error {
		wan, err := netlink.LinkByName("wan0")
		if err != nil {
			return err
		}
		return netlink.LinkSetGSOMaxSegs(wan, segments)
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// flow is a connection under a congestion control.
type flow struct {
	*net.TCPConn
	t   testing.TB
	raw syscall.RawConn
}

// dial connects under a congestion control.
func (p *path) dial(t testing.TB, name string) *flow {
	t.Helper()
	var conn net.Conn
	err := p.A.Do(func() (err error) {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return setName(c, name) }}
		d.SetMultipathTCP(false)
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Wait(20*time.Second))
		defer cancel()
		conn, err = d.DialContext(ctx, "tcp", p.server)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	tcp := conn.(*net.TCPConn)
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{tcp, t, raw}
	f.want(name)
	return f
}

func setName(c syscall.RawConn, name string) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}); cerr != nil {
		return cerr
	}
	return err
}

// want says that the flow has the congestion control.
func (f *flow) want(name string) {
	f.t.Helper()
	var got string
	var err error
	cerr := f.raw.Control(func(fd uintptr) {
		got, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err != nil || cerr != nil || got != name {
		f.t.Errorf("congestion control %q (%v, %v), want %s", got, err, cerr, name)
	}
}

func (f *flow) info() (*unix.TCPInfo, error) {
	var info *unix.TCPInfo
	var err error
	if cerr := f.raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); cerr != nil {
		return nil, cerr
	}
	return info, err
}

// send sends n bytes and says whether what arrived is what was sent; during is called when half of them are written.
func (f *flow) send(n int64, during func()) error {
	if err := f.SetDeadline(time.Now().Add(testkit.Wait(60 * time.Second))); err != nil {
		return err
	}
	h := sha256.New()
	src := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{byte(n)}), n), h)
	if _, err := io.CopyN(f, src, n/2); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if during != nil {
		during()
	}
	if _, err := io.Copy(f, src); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if err := f.CloseWrite(); err != nil {
		return fmt.Errorf("ending: %w", err)
	}
	got, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("waiting for the answer: %w", err)
	}
	if string(got) != string(h.Sum(nil)) {
		return fmt.Errorf("what arrived is not what was sent: hash %x, want %x", got, h.Sum(nil))
	}
	return nil
}

// sample is what the kernel says of a flow at a moment.
type sample struct {
	cwnd, ssthresh uint32 // packets
	retransmits    uint32
}

// watch samples the flow until stop is called, every half millisecond at best.
func (f *flow) watch() (stop func() []sample) {
	var samples []sample
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			i, err := f.info()
			if err != nil {
				return
			}
			samples = append(samples, sample{i.Snd_cwnd, i.Snd_ssthresh, i.Total_retrans})
			select {
			case <-done:
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
	})
	return func() []sample {
		close(done)
		wg.Wait()
		return samples
	}
}

// infinite is the ssthresh of a flow that has lost nothing.
const infinite = 0x7fffffff

// decreases returns, for each new ssthresh, by what the window before it was multiplied.
func decreases(samples []sample) []float64 {
	var found []float64
	for i := 1; i < len(samples); i++ {
		before, now := samples[i-1], samples[i]
		if now.ssthresh != before.ssthresh && now.ssthresh < infinite && now.ssthresh < before.cwnd && before.cwnd > 16 {
			found = append(found, float64(now.ssthresh)/float64(before.cwnd))
		}
	}
	return found
}
