// SPDX-License-Identifier: Apache-2.0

// Package lab joins two sites by an emulated wide-area link, all on one machine, for tests, the demo and benches.
//
// A site is a network namespace and a cgroup. Its only way out is a device, wan0, behind which a Link gives rate, delay, a
// drop-tail queue and seeded loss: in this process, which keeps the ground truth of what was sent twice and can replay
// measured links, or in the kernel, by netem in a namespace between the sites.
//
// Namespaces have no name: they are held by file descriptors of this process, and children die with it, so that
// even kill -9 of the owner leaves nothing but two empty cgroups, which the next New removes.
package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// Options says what the lab is like. The zero value of each field has a sensible meaning.
type Options struct {
	Emulation Emulation     // who delays packets; the zero value is InProcess
	Rate      uint64        // bits per second of IP packets in each direction; 0 is 1 Gbit/s
	Trace     *Trace        // what A to B delivers by, instead of Rate; InProcess only
	TraceBA   *Trace        // the same of B to A; nil: by Rate
	RTT       time.Duration // two-way delay of the empty link, half in each direction; 0 is none
	MTU       int           // bytes of an IP packet that the sites' devices take, 1280 to 65520; 0 is 1500
	OneWay    bool          // all of RTT is from A to B, and the way back is not delayed

	// Loss is the share, 0 to 1, of packets of at most one MTU that is lost in each direction. Which ones, the seed and the
	// packet's number decide alone: equal seeds lose the same packets of the same traffic, under either emulation.
	Loss  float64
	Burst float64 // mean number of packets lost in a row, at the same share of losses; 0 and 1: they are independent
	Seed  uint64  // of the losses; Link.Restart gives another

	// LossAB has Loss from A to B alone, and has only TCP segments with payload numbered and lost: numbers then say the same
	// whatever a congestion control sends of acknowledgements, and no connection waits a second for its first packet. Loss
	// set later for one direction (Direction.SetLoss) spares the same. Without it everything is numbered and lost.
	LossAB bool

	QueueBDP   float64 // the drop-tail queue in rate x RTT; 0 is 1. Never below MinQueue bytes
	QueueBytes uint64  // the same in bytes, instead of QueueBDP; 0: by QueueBDP
	NoGSO      bool    // the sites' devices take single packets of one MTU, no super-packets; implied by InKernel

	NoIPv6 bool  // IPv4 only
	NoIPv4 bool  // IPv6 only: no namespace of the lab has an IPv4 address, not even on its loopback
	DSCP   uint8 // the code point the ground truth looks for, 0 to 63; 0 is 10 (AF11)

	// CgroupParent is where the lab's cgroups are made, a path below the cgroup2 mount; empty is the mount itself.
	CgroupParent string
}

func (o Options) withDefaults() Options {
	if o.Rate == 0 {
		o.Rate = 1e9
	}
	if o.MTU == 0 {
		o.MTU = wanMTU
	}
	if o.QueueBDP == 0 {
		o.QueueBDP = 1
	}
	if o.DSCP == 0 {
		o.DSCP = 10
	}
	o.NoGSO = o.NoGSO || o.Emulation == InKernel
	return o
}

func (o Options) check() error {
	switch {
	case o.Emulation != InProcess && o.Emulation != InKernel:
		return fmt.Errorf("there is no emulation %d; use InProcess or InKernel", o.Emulation)
	case o.Emulation == InKernel && (o.Trace != nil || o.TraceBA != nil):
		return errors.New("netem cannot replay a trace; use the emulation InProcess for it")
	case !(o.Loss >= 0 && o.Loss <= 1):
		return fmt.Errorf("loss is a probability from 0 to 1, not %g", o.Loss)
	case o.Burst != 0 && !(o.Burst >= 1 && o.Burst <= maxBurst):
		return fmt.Errorf("mean burst of %g packets: it is 0, or from 1 to %d", o.Burst, int(maxBurst))
	case !burstFits(o.Loss, o.Burst):
		return fmt.Errorf("loss %g does not fit in bursts of %g packets with one between them; use longer bursts", o.Loss, o.Burst)
	case o.MTU != 0 && (o.MTU < 1280 || o.MTU > 65520):
		return fmt.Errorf("MTU %d is not from 1280, which IPv6 needs, to 65520", o.MTU)
	case o.RTT < 0:
		return fmt.Errorf("round-trip time %v is negative", o.RTT)
	case !(o.QueueBDP >= 0):
		return fmt.Errorf("queue of %g BDP is negative", o.QueueBDP)
	case o.NoIPv4 && o.NoIPv6:
		return errors.New("a lab has IPv4 or IPv6 or both")
	case o.DSCP > 63:
		return fmt.Errorf("DSCP %d is above 63", o.DSCP)
	}
	return nil
}

// Lab is two sites and the link between them.
type Lab struct {
	A, B *Site
	Link *Link

	opts   Options
	cgroup *cgroup // parent of the sites' cgroups
	router *router // between the sites of a link in the kernel; nil in-process

	mu         sync.Mutex // guards what follows
	closed     bool
	processes  map[*Process]struct{}
	namespaces []*Namespace
	sites      []*Site
}

// New builds a lab. It needs root, a cgroup2 hierarchy, and /dev/net/tun or netem; the error says which is missing.
func New(o Options) (_ *Lab, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Lab{opts: o.withDefaults(), processes: map[*Process]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.cgroup, err = newLabCgroup(o.CgroupParent); err != nil {
		return nil, err
	}
	if l.opts.Emulation == InKernel {
		if err := HaveNetem(); err != nil {
			return nil, err
		}
		if l.router, err = l.newRouter(); err != nil {
			return nil, fmt.Errorf("router: %w", err)
		}
	}
	if l.A, err = l.newSite("a", 1); err != nil {
		return nil, fmt.Errorf("site a: %w", err)
	}
	if l.B, err = l.newSite("b", 2); err != nil {
		return nil, fmt.Errorf("site b: %w", err)
	}
	l.A.other, l.B.other = l.B, l.A
	for _, s := range l.sites {
		if err := s.routeToOther(); err != nil {
			return nil, fmt.Errorf("site %s: %w", s.Name, err)
		}
	}
	l.Link, err = l.newLink()
	return l, err
}

// newLink joins the sites.
func (l *Lab) newLink() (*Link, error) {
	o := l.opts
	ab, ba := o.shapes()
	keyAB, keyBA := lossKey(o.Seed, numberAB), lossKey(o.Seed, numberBA)
	if l.router == nil {
		return &Link{
			AB: newDirection(newPipe(l.A.tun, l.B.tun, ab, keyAB, o.Trace, o.DSCP), ab, numberAB),
			BA: newDirection(newPipe(l.B.tun, l.A.tun, ba, keyBA, o.TraceBA, o.DSCP), ba, numberBA),
		}, nil
	}
	for _, s := range l.sites {
		if err := l.router.routeTo(s); err != nil {
			return nil, fmt.Errorf("router to site %s: %w", s.Name, err)
		}
	}
	wayAB, err := l.router.way(l.A, l.B, ab, keyAB)
	if err != nil {
		return nil, fmt.Errorf("router, from a to b: %w", err)
	}
	wayBA, err := l.router.way(l.B, l.A, ba, keyBA)
	if err != nil {
		wayAB.stop()
		return nil, fmt.Errorf("router, from b to a: %w", err)
	}
	return &Link{AB: newDirection(wayAB, ab, numberAB), BA: newDirection(wayBA, ba, numberBA)}, nil
}

// Close kills every process started in the lab and everything those started, waits for them, and removes
// namespaces, devices and cgroups. It may be called more than once.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	running := make([]*Process, 0, len(l.processes))
	for p := range l.processes {
		running = append(running, p)
	}
	l.mu.Unlock()

	for _, p := range running {
		_ = p.Kill()
	}
	var errs []error
	if l.cgroup != nil {
		// A server's workers are not our children, so the cgroup is what finds them.
		errs = append(errs, l.cgroup.killAll())
	}
	for _, p := range running {
		_ = p.Wait()
	}
	if l.Link != nil {
		l.Link.stop()
	}
	for _, s := range l.sites {
		s.closeDevice()
	}
	for _, n := range l.namespaces {
		n.close()
	}
	if l.cgroup != nil {
		errs = append(errs, l.cgroup.remove())
	}
	return errors.Join(errs...)
}

// prefixes of a site: 10.81.N.0/24 and fd81:N::/64.
func sitePrefixes(n byte) (v4, v6 netip.Prefix) {
	a6 := netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x81, 3: n})
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 81, n, 0}), 24), netip.PrefixFrom(a6, 64)
}

// hostIn gives the address in the prefix whose last 16 bits have host added.
func hostIn(p netip.Prefix, host uint16) netip.Addr {
	b := p.Masked().Addr().As16()
	b[14] += byte(host >> 8)
	b[15] += byte(host)
	return netip.AddrFrom16(b).Unmap()
}
