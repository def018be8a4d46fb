// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
)

// spliceCheck is one thing that must be on the fast path as it is on plain TCP.
type spliceCheck struct {
	name string
	run  func(*splicePair) error
}

var spliceChecks = []spliceCheck{
	{"redirect", checkRedirect},
	{"fionread", checkFionread},
	{"epoll-level", func(p *splicePair) error { return checkEpollBoth(p, checkEpollLevel) }},
	{"epoll-edge", func(p *splicePair) error { return checkEpollBoth(p, checkEpollEdge) }},
	{"splice", checkSpliceCall},
	{"half-close", checkHalfClose},
	{"blocking-read", checkBlockingRead},
	{"reset", checkReset},
	{"abort", checkAbort},
	{"hash", checkHash},
	{"release", checkRelease},
}

// checkRedirect: the first message arrives, and it came by the fast path.
func checkRedirect(p *splicePair) error {
	if err := exchange(p.app, p.eng, []byte("first")); err != nil {
		return err
	}
	s, err := p.state()
	if err != nil {
		return err
	}
	if s.Splice != bpf.SpliceOn || s.SpliceMsgs != 1 || s.SpliceBytes != 5 {
		return fmt.Errorf("1 message of 5 bytes was sent, state %d says %d of %d", s.Splice, s.SpliceMsgs, s.SpliceBytes)
	}
	return exchange(p.eng, p.app, []byte("answer"))
}

// checkFionread: an application asks how much it can read, before and after reading a part. Some stable kernels say 0 as
// soon as the socket is in a map.
func checkFionread(p *splicePair) error {
	if _, err := p.eng.Write(make([]byte, 1000)); err != nil {
		return err
	}
	if err := waitReadable(p.app, p.limit()); err != nil {
		return err
	}
	if err := wantFionread(p.app, 1000); err != nil {
		return err
	}
	if _, err := io.ReadFull(p.app, make([]byte, 300)); err != nil {
		return err
	}
	return wantFionread(p.app, 700)
}

func wantFionread(c *net.TCPConn, want int) error {
	return withFD(c, func(fd int) error {
		got, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err == nil && got != want {
			err = fmt.Errorf("%d bytes are waiting, the kernel says %d", want, got)
		}
		return err
	})
}

// waitReadable waits by poll(2), which says nothing of how much there is.
func waitReadable(c *net.TCPConn, limit time.Duration) error {
	return withFD(c, func(fd int) error {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, int(limit.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err == nil && n == 0 {
				err = errors.New("poll does not see the bytes that came")
			}
			return err
		}
	})
}

// checkEpollBoth runs a check for both ends, each with the other as the writer.
func checkEpollBoth(p *splicePair, check func(w, r *net.TCPConn, limit time.Duration) error) error {
	if err := check(p.eng, p.app, p.limit()); err != nil {
		return fmt.Errorf("application's end: %w", err)
	}
	if err := check(p.app, p.eng, p.limit()); err != nil {
		return fmt.Errorf("engine's end: %w", err)
	}
	return nil
}

func checkEpollLevel(w, r *net.TCPConn, limit time.Duration) error {
	ep, err := newEpoll(r, unix.EPOLLIN)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	buf := make([]byte, 60)
	steps := []struct {
		what  string
		do    func() error
		ready bool
	}{
		{"nothing was sent", func() error { return nil }, false},
		{"100 bytes were sent", func() error { _, err := w.Write(make([]byte, 100)); return err }, true},
		{"nothing was read since", func() error { return nil }, true},
		{"40 of 100 bytes were read", func() error { _, err := io.ReadFull(r, buf[:40]); return err }, true},
		{"all was read", func() error { _, err := io.ReadFull(r, buf[:60]); return err }, false},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return err
		}
		if err := wantEpoll(ep, s.ready, limit); err != nil {
			return fmt.Errorf("%w after %s", err, s.what)
		}
	}
	return nil
}

// checkEpollEdge: every arrival wakes a reader that watches for changes only, also when it has left bytes unread.
func checkEpollEdge(w, r *net.TCPConn, limit time.Duration) error {
	ep, err := newEpoll(r, unix.EPOLLIN|unix.EPOLLET)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	for _, read := range []int{0, 150, 50} {
		if _, err := w.Write(make([]byte, 100)); err != nil {
			return err
		}
		if err := wantEpoll(ep, true, limit); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, make([]byte, read)); err != nil {
			return err
		}
	}
	_, err = io.ReadFull(r, make([]byte, 100))
	return err
}

// newEpoll watches one connection.
func newEpoll(c *net.TCPConn, events uint32) (int, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("epoll_create1", err)
	}
	err = withFD(c, func(fd int) error {
		return unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
	})
	if err != nil {
		unix.Close(ep)
		return -1, os.NewSyscallError("epoll_ctl", err)
	}
	return ep, nil
}

// wantEpoll waits for an event where there must be one, and looks once where there must be none.
func wantEpoll(ep int, ready bool, limit time.Duration) error {
	timeout := 0
	if ready {
		timeout = int(limit.Milliseconds())
	}
	events := make([]unix.EpollEvent, 1)
	for {
		n, err := unix.EpollWait(ep, events, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("epoll_wait", err)
		case ready && n == 0:
			return errors.New("a wake-up was lost")
		case !ready && n > 0:
			return errors.New("readable with nothing to read")
		}
		return nil
	}
}

// checkSpliceCall: proxies of others (HAProxy, Go's io.Copy) read by splice(2) from their own sockets.
func checkSpliceCall(p *splicePair) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, err := p.eng.Write(make([]byte, 1000)); err != nil {
		return err
	}
	if err := waitReadable(p.app, p.limit()); err != nil {
		return err
	}
	return withFD(p.app, func(fd int) error {
		n, err := unix.Splice(fd, nil, pipe[1], nil, 4096, unix.SPLICE_F_NONBLOCK)
		if err == nil && n != 1000 {
			err = fmt.Errorf("1000 bytes are waiting, splice(2) moves %d", n)
		}
		return err
	})
}

// checkHalfClose: all bytes come before the end, both ways. The engine reads last, when both ends have finished and the
// connection itself is gone.
func checkHalfClose(p *splicePair) error {
	sent := make([]byte, 100_000)
	fillRandom(sent)
	for _, from := range []*net.TCPConn{p.app, p.eng} {
		for part := range 4 {
			if _, err := from.Write(sent[part*25_000 : (part+1)*25_000]); err != nil {
				return err
			}
		}
		if err := from.CloseWrite(); err != nil {
			return err
		}
	}
	for _, to := range []*net.TCPConn{p.app, p.eng} {
		got, err := io.ReadAll(to)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, sent) {
			return fmt.Errorf("%d bytes were sent, %d came before the end", len(sent), len(got))
		}
	}
	return nil
}

// checkReset: an application that dies is told from one that has finished.
func checkReset(p *splicePair) error {
	sent := make([]byte, 10_000)
	fillRandom(sent)
	if _, err := p.app.Write(sent); err != nil {
		return err
	}
	_ = p.app.SetLinger(0)
	_ = p.app.Close()
	got, err := io.ReadAll(p.eng)
	if !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("the application reset the connection, the engine sees %v", err)
	}
	if !bytes.HasPrefix(sent, got) {
		return errors.New("other bytes came than were sent")
	}
	return nil
}

// checkAbort: the engine gives up with redirected bytes unread, and the application learns of it.
func checkAbort(p *splicePair) error {
	if _, err := p.app.Write(make([]byte, 50_000)); err != nil {
		return err
	}
	_ = p.eng.SetLinger(0)
	_ = p.eng.Close()
	if _, err := io.ReadAll(p.app); !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("the engine reset the connection, the application sees %v", err)
	}
	return nil
}

// checkHash: some MiB in writes of every size, past the budget and on by plain TCP, arrive exactly.
func checkHash(p *splicePair) error {
	const total = 2 << 20
	sent := make(chan error, 1)
	want := sha256.New()
	go func() { sent <- writeRandom(p.app, want, total) }()
	got := sha256.New()
	_, err := io.CopyBuffer(struct{ io.Writer }{got}, io.LimitReader(p.eng, total), make([]byte, 16<<10))
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		return errors.New("the bytes that came are not those that were sent")
	}
	s, err := p.state()
	if err == nil && (s.Splice != bpf.SpliceOver || s.SpliceBytes == 0 || s.SpliceBytes > bpf.SpliceBytes) {
		err = fmt.Errorf("state %d with %d bytes redirected, at most %d may be", s.Splice, s.SpliceBytes, bpf.SpliceBytes)
	}
	return err
}

// checkRelease: out of the map by its key, with redirected bytes still unread, the connection is plain TCP again.
func checkRelease(p *splicePair) error {
	sent := make([]byte, 30_000)
	fillRandom(sent)
	if _, err := p.app.Write(sent[:20_000]); err != nil {
		return err
	}
	if err := p.b.coll.Maps["tl_apps"].Delete(p.key); err != nil {
		return err
	}
	if _, err := p.app.Write(sent[20_000:]); err != nil {
		return err
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(p.eng, got); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return errors.New("the bytes that came are not those that were sent")
	}
	return checkFionread(p)
}

// exchange sends one message and receives it at the other end.
func exchange(from, to *net.TCPConn, msg []byte) error {
	if _, err := from.Write(msg); err != nil {
		return err
	}
	got := make([]byte, len(msg))
	if _, err := io.ReadFull(to, got); err != nil {
		return err
	}
	if !bytes.Equal(got, msg) {
		return fmt.Errorf("%q was sent, %q came", msg, got)
	}
	return nil
}

// writeRandom writes so many random bytes in pieces of 1 byte to 64 KiB, most of them short.
func writeRandom(w io.Writer, h hash.Hash, total int) error {
	buf := make([]byte, 64<<10)
	for total > 0 {
		n := min(total, 1+rand.IntN(1<<(4+rand.IntN(13))))
		fillRandom(buf[:n])
		h.Write(buf[:n])
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		total -= n
	}
	return nil
}

func fillRandom(b []byte) {
	for len(b) >= 8 {
		binary.NativeEndian.PutUint64(b, rand.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
}
