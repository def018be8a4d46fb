// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/trunkline/trunkline/bpf"
)

// SpliceFailure is one check of the self-test that this kernel does not pass.
type SpliceFailure struct {
	Check string // the check's name
	Err   error
}

// SpliceTestError says which checks this kernel's sockmap does not pass.
type SpliceTestError struct {
	Failures []SpliceFailure
}

// Error names the failed checks, each with what was seen, in one line.
func (e *SpliceTestError) Error() string {
	s := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		s[i] = fmt.Sprintf("%s: %v", f.Check, f.Err)
	}
	return strings.ReplaceAll(strings.Join(s, "; "), "\n", ", ")
}

// Unwrap gives the checks' own errors.
func (e *SpliceTestError) Unwrap() []error {
	errs := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		errs[i] = f.Err
	}
	return errs
}

// Has reports whether the check of that name failed.
func (e *SpliceTestError) Has(check string) bool {
	return slices.ContainsFunc(e.Failures, func(f SpliceFailure) bool { return f.Check == check })
}

// outOfTime says whether a starved machine could have failed a check; a lost wake-up looks the same.
func outOfTime(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// onlyOutOfTime says whether the self-test found nothing else.
func onlyOutOfTime(err error) bool {
	var e *SpliceTestError
	return errors.As(err, &e) && !slices.ContainsFunc(e.Failures, func(f SpliceFailure) bool { return !outOfTime(f.Err) })
}

// testSplice tries out how sockets behave in a sockmap of this kernel: whether applications that know nothing of it see
// what they would see on plain TCP. It works on loopback in the caller's network namespace, with the verdict that
// serves later but with maps of its own, and leaves nothing. Versions would tell nothing: the faults were introduced
// and mended in stable releases.
func testSplice(ctx context.Context) error {
	b, err := newSpliceBench()
	if err != nil {
		return &SpliceTestError{[]SpliceFailure{{"setup", err}}}
	}
	defer b.close()
	b.measure()
	ctx, cancel := context.WithTimeout(ctx, b.bounds.total)
	defer cancel()
	var failures []SpliceFailure
	for _, c := range spliceChecks {
		if err := b.check(ctx, c); err != nil {
			failures = append(failures, SpliceFailure{c.name, err})
		}
	}
	if failures != nil {
		return &SpliceTestError{failures}
	}
	return nil
}

// spliceBench is a throw-away fast path: the verdict, its maps, and a listener in the engine's place.
type spliceBench struct {
	coll      *ebpf.Collection
	detach    func() error
	pairs     atomic.Uint64
	bounds    spliceBounds
	listeners []net.Listener // one for each family that loopback has
}

// splicePair is one connection with both ends in the maps.
type splicePair struct {
	b        *spliceBench
	app, eng *net.TCPConn
	key      bpf.SpliceKey // of the application's end
	id       bpf.SpliceID  // of the engine's end
}

func newSpliceBench() (*spliceBench, error) {
	spec, err := bpf.Splice()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading the verdict: %w", err)
	}
	b := &spliceBench{coll: coll, bounds: spliceLeast}
	b.detach, err = attachVerdict(coll.Programs["tl_verdict"], coll.Maps["tl_apps"])
	if err != nil {
		coll.Close()
		return nil, err
	}
	if err := b.listen(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// listen opens a plain TCP listener (Go's default is MPTCP, which no sockmap takes) on every loopback address there is.
func (b *spliceBench) listen() error {
	lc := net.ListenConfig{KeepAlive: -1} // nothing is to come by itself
	lc.SetMultipathTCP(false)
	var errs []error
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.listeners = append(b.listeners, ln)
	}
	if b.listeners == nil {
		return fmt.Errorf("listening on loopback: %w", errors.Join(errs...))
	}
	return nil
}

func (b *spliceBench) close() {
	for _, ln := range b.listeners {
		_ = ln.Close()
	}
	_ = b.detach()
	b.coll.Close()
}

// check runs one check on a fresh connection of each family.
func (b *spliceBench) check(ctx context.Context, c spliceCheck) error {
	for _, ln := range b.listeners {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("not run: %w", err)
		}
		p, err := b.pair(ln, b.deadline(ctx))
		if err == nil {
			err = c.run(p)
			p.close()
		}
		if err != nil {
			return fmt.Errorf("%w (on %s)", err, ln.Addr().(*net.TCPAddr).IP)
		}
	}
	return nil
}

// deadline is that of a check which starts now.
func (b *spliceBench) deadline(ctx context.Context) time.Time {
	t := time.Now().Add(b.bounds.check)
	if end, ok := ctx.Deadline(); ok && end.Before(t) {
		return end
	}
	return t
}

// pair connects to the listener and enters both ends.
func (b *spliceBench) pair(ln net.Listener, deadline time.Time) (*splicePair, error) {
	p, err := b.connect(ln, deadline)
	if err != nil {
		return nil, err
	}
	if err := p.enter(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// connect makes a plain connection, over by the deadline.
func (b *spliceBench) connect(ln net.Listener, deadline time.Time) (*splicePair, error) {
	d := net.Dialer{Deadline: deadline, KeepAlive: -1}
	d.SetMultipathTCP(false)
	app, err := d.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	p := &splicePair{b: b, app: app.(*net.TCPConn), id: b.nextID()}
	if err := p.accept(ln, deadline); err != nil {
		p.close()
		return nil, err
	}
	_ = p.app.SetDeadline(deadline)
	_ = p.eng.SetDeadline(deadline)
	p.key = bpf.SpliceKeyFrom(addrPort(p.app.LocalAddr()), addrPort(ln.Addr()).Port())
	return p, nil
}

// accept takes our own connection and sends strangers away: any process may connect to a loopback port.
func (p *splicePair) accept(ln net.Listener, deadline time.Time) error {
	if err := ln.(*net.TCPListener).SetDeadline(deadline); err != nil {
		return err
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		if addrPort(c.RemoteAddr()) == addrPort(p.app.LocalAddr()) {
			p.eng = c.(*net.TCPConn)
			return nil
		}
		_ = c.Close()
	}
}

// nextID numbers connections; sockops takes a cookie and a sequence number.
func (b *spliceBench) nextID() bpf.SpliceID { return bpf.SpliceID{Cookie: b.pairs.Add(1)} }

// enter puts both ends into their maps as sockops does: the target before the first byte.
func (p *splicePair) enter() error {
	return errors.Join(p.enterEngine(), p.enterApp())
}

func (p *splicePair) enterEngine() error {
	err := withFD(p.eng, func(fd int) error {
		return p.b.coll.Maps["tl_engs"].Update(p.id, uint64(fd), ebpf.UpdateNoExist)
	})
	if err != nil {
		return fmt.Errorf("entering the engine's end: %w", err)
	}
	return nil
}

func (p *splicePair) enterApp() error {
	s := bpf.Sock{Splice: bpf.SpliceOn, SpliceCookie: p.id.Cookie, SpliceSeq: p.id.Seq}
	err := withFD(p.app, func(fd int) error {
		if err := p.b.coll.Maps["tl_sock"].Update(int32(fd), s, ebpf.UpdateAny); err != nil {
			return err
		}
		return p.b.coll.Maps["tl_apps"].Update(p.key, uint64(fd), ebpf.UpdateNoExist)
	})
	if err != nil {
		return fmt.Errorf("entering the application's end: %w", err)
	}
	return nil
}

// state reads what the verdict has written down for the application's end.
func (p *splicePair) state() (s bpf.Sock, err error) {
	err = withFD(p.app, func(fd int) error { return p.b.coll.Maps["tl_sock"].Lookup(int32(fd), &s) })
	return s, err
}

// close ends both connections with a reset, so that no port stays in TIME_WAIT.
func (p *splicePair) close() {
	for _, c := range []*net.TCPConn{p.app, p.eng} {
		if c != nil {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// withFD lends a connection's descriptor. Nothing in f may block.
func withFD(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// addrPort returns a TCP address with IPv4 as IPv4.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
