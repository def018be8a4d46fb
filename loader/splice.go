// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/bpf"
	"github.com/trunkline/trunkline/bpf/reason"
	"github.com/trunkline/trunkline/loader/policy"
)

// spliceState says what became of the sockmap fast path at start. It does not change afterwards.
type spliceState struct {
	ready    bool   // maps and verdict are in the kernel
	detail   string // not ready: why
	remedy   string
	selfTest error // a *SpliceTestError where this kernel's sockmap failed
}

// startSplice brings the fast path up as far as this kernel has it, before the first rule is applied and before any
// program could enter a socket: the kernel takes a socket's verdict at the moment it is entered. Nothing else depends on
// the outcome.
func (l *Loader) startSplice(ctx context.Context) {
	if err := l.loadSplice(); err != nil {
		l.splice.detail, l.splice.remedy = whyNot(err, minKernel)
		l.splice.remedy += "; sockmap also needs CONFIG_BPF_STREAM_PARSER"
		return
	}
	l.splice.ready = true
	if l.splice.selfTest = testSplice(ctx); l.splice.selfTest != nil {
		l.log.Info("sockmap fails the self-test", "err", l.splice.selfTest)
	}
}

func (l *Loader) loadSplice() error {
	coll, err := l.loadObject(bpf.Splice)
	if err != nil {
		return err
	}
	detach, err := attachVerdict(coll.Programs["tl_verdict"], l.maps["tl_apps"])
	if err != nil {
		return err
	}
	l.onClose(detach)
	l.onClose(l.keepTargets)
	return nil
}

// keepTargets runs when nothing enters sockets any more. A socket that leaves tl_engs loses the redirected bytes that the
// engine has not read, without a word to either end. So if the engine is still at work, the map stays until the process
// ends: the descriptor is left open on purpose.
func (l *Loader) keepTargets() error {
	engs := l.maps["tl_engs"]
	if emptyMap(engs) {
		return nil
	}
	l.log.Warn("closing while the engine still has connections on the sockmap fast path")
	if _, err := unix.FcntlInt(uintptr(engs.FD()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return fmt.Errorf("keeping the sockmap of the engine's connections: %w", err)
	}
	return nil
}

func emptyMap(m *ebpf.Map) bool {
	key, err := m.NextKeyBytes(nil)
	return key == nil && err == nil
}

// attachVerdict has every write of sockets in the map pass the program. A link goes with the process; where the kernel
// has none for maps (before 6.10) the attachment goes with the map, which nothing pins.
func attachVerdict(prog *ebpf.Program, apps *ebpf.Map) (detach func() error, err error) {
	lk, err := link.AttachRawLink(link.RawLinkOptions{Target: apps.FD(), Program: prog, Attach: ebpf.AttachSkMsgVerdict})
	if err == nil {
		return lk.Close, nil
	}
	o := link.RawAttachProgramOptions{Target: apps.FD(), Program: prog, Attach: ebpf.AttachSkMsgVerdict}
	if err := link.RawAttachProgram(o); err != nil {
		return nil, fmt.Errorf("attaching the verdict to the sockmap: %w", err)
	}
	return func() error { return link.RawDetachProgram(link.RawDetachProgramOptions(o)) }, nil
}

// loadSockops loads the sockops programs, with the fast path's part only where its maps are: rules, telemetry and
// steering never wait for a sockmap.
func (l *Loader) loadSockops() (*ebpf.Collection, error) {
	read := func() (*ebpf.CollectionSpec, error) { return bpf.Sockops(l.splice.ready) }
	coll, err := l.loadObject(read)
	if err == nil || !l.splice.ready {
		return coll, err
	}
	l.log.Warn("sockops does not load with the fast path's part; going on without it", "err", err)
	l.splice = spliceState{}
	l.splice.detail, l.splice.remedy = whyNot(err, minKernel)
	l.feature(l.spliceFeature(nil))
	return l.loadObject(read)
}

// spliceFor says whether the steered connections of a rule are to use the fast path.
func (l *Loader) spliceFor(r policy.Rule) bool {
	if !l.splice.ready || r.PeerID == 0 {
		return false
	}
	switch r.Splice {
	case policy.SpliceForce:
		return true
	case policy.SpliceAuto:
		return l.splice.selfTest == nil
	}
	return false
}

// spliceFeature says what the fast path does for these rules.
func (l *Loader) spliceFeature(rules []policy.Rule) Feature {
	f := Feature{Name: "splice"}
	forced := 0
	for _, r := range rules {
		if r.Splice == policy.SpliceForce && l.spliceFor(r) {
			forced++
		}
	}
	failed, _ := reason.Lookup(reason.SelfTestFailed)
	switch {
	case !l.splice.ready:
		f.Detail, f.Remedy = l.splice.detail, l.splice.remedy
	case l.splice.selfTest == nil:
		f.On, f.Detail = true, "sockmap passed the self-test"
	case forced > 0:
		f.On = true
		f.Detail = fmt.Sprintf("forced for %d rule(s), off for others; %s: %v", forced, failed.Name, l.splice.selfTest)
	default:
		f.Detail, f.Remedy = fmt.Sprintf("%s: %v", failed.Name, l.splice.selfTest), failed.Action
		if onlyOutOfTime(l.splice.selfTest) {
			f.Remedy = "restart the agent when the host is less busy; if it stays so, update the kernel"
		}
	}
	return f
}

// SpliceDone makes a steered connection plain TCP for good, given the application's end as the engine sees it. Bytes
// redirected so far stay where they are, in front of all that follow. Absent is as good as done.
func (l *Loader) SpliceDone(client netip.AddrPort) {
	apps := l.maps["tl_apps"]
	if apps == nil {
		return
	}
	l.mu.Lock()
	port := l.agent.EnginePort6
	if client.Addr().Unmap().Is4() {
		port = l.agent.EnginePort4
	}
	l.mu.Unlock()
	err := apps.Delete(bpf.SpliceKeyFrom(client, port))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		l.log.Debug("taking a socket out of the sockmap", "client", client, "err", err)
	}
}

// SpliceCounts returns what the fast path has done since Load: connections and messages, and bytes where the name says
// so. All is zero where there is no fast path.
func (l *Loader) SpliceCounts() (bpf.SpliceCount, error) {
	m := l.maps["tl_spliced"]
	if m == nil {
		return bpf.SpliceCount{}, nil
	}
	return spliceCounts(m)
}

// spliceCounts adds up what each CPU has counted.
func spliceCounts(m *ebpf.Map) (sum bpf.SpliceCount, err error) {
	var perCPU []bpf.SpliceCount
	if err := m.Lookup(uint32(0), &perCPU); err != nil {
		return sum, fmt.Errorf("reading the fast path's counters: %w", err)
	}
	for _, n := range perCPU {
		sum.Entered += n.Entered
		sum.Redirected += n.Redirected
		sum.RedirectedBytes += n.RedirectedBytes
		sum.Spent += n.Spent
		sum.Absent += n.Absent
		sum.Unfit += n.Unfit
	}
	return sum, nil
}
