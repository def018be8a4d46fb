// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/ledger"
	"github.com/trunkline/trunkline/loader/policy"
)

// The host-wide maxima of what a program may set as a socket's buffers.
const (
	rmemMax = "net.core.rmem_max"
	wmemMax = "net.core.wmem_max"
)

// bufferState is which maxima this instance has raised, as entries of the ledger.
type bufferState struct {
	raised map[string][]uint64
}

// bufferLimits is what the kernel gives as fixed buffers, in bytes as set (it doubles them).
type bufferLimits struct {
	rcv, snd uint32
}

// window returns the fixed window a rule gets: the kernel would shrink one that it has no room for, so that is refused
// and auto-tuning stays.
func (b bufferLimits) window(r policy.Rule) uint32 {
	if r.WindowBytes > b.rcv {
		return 0
	}
	return r.WindowBytes
}

// sndbuf returns the fixed send buffer that a rule gets, likewise.
func (b bufferLimits) sndbuf(r policy.Rule) uint32 {
	if r.SndbufBytes > b.snd {
		return 0
	}
	return r.SndbufBytes
}

// neededBuffers returns the largest buffers that any rule asks for.
func neededBuffers(t *policy.Table) (rcv, snd uint32) {
	for _, r := range t.Rules() {
		rcv, snd = max(rcv, r.WindowBytes), max(snd, r.SndbufBytes)
	}
	return rcv, snd
}

// makeRoom raises the host's maxima as far as the rules need it, and says what the kernel then gives.
func (l *Loader) makeRoom(t *policy.Table) bufferLimits {
	rcv, snd := neededBuffers(t)
	for _, m := range []struct {
		sysctl string
		option int
		need   uint32
	}{{rmemMax, unix.SO_RCVBUF, rcv}, {wmemMax, unix.SO_SNDBUF, snd}} {
		if m.need <= given(m.option, m.need) {
			continue
		}
		if err := l.raise(m.sysctl, m.need); err != nil {
			l.log.Warn("cannot raise "+m.sysctl, "err", err)
		}
	}
	return l.measureRoom(t)
}

// measureRoom says what the kernel gives of the buffers that the rules need, and records the feature's state.
func (l *Loader) measureRoom(t *policy.Table) bufferLimits {
	rcv, snd := neededBuffers(t)
	fits := bufferLimits{rcv: given(unix.SO_RCVBUF, rcv), snd: given(unix.SO_SNDBUF, snd)}
	f := Feature{Name: "window", On: true, Detail: "no rule asks for a fixed window"}
	if rcv > 0 || snd > 0 {
		f.Detail = "fixed windows are set"
	}
	if n := len(l.rules.buffers.raised); n > 0 {
		f.Detail += "; raised for all of the host: " + strings.Join(keys(l.rules.buffers.raised), ", ")
	}
	var refused, remedies []string
	for _, r := range t.Rules() {
		if fits.window(r) != r.WindowBytes || fits.sndbuf(r) != r.SndbufBytes {
			refused = append(refused, r.Label())
		}
	}
	if rcv > fits.rcv {
		remedies = append(remedies, fmt.Sprintf("sysctl -w %s=%d", rmemMax, rcv))
	}
	if snd > fits.snd {
		remedies = append(remedies, fmt.Sprintf("sysctl -w %s=%d", wmemMax, snd))
	}
	if len(refused) > 0 {
		f.On = false
		f.Detail = fmt.Sprintf("refused for %s: the host's maximum would shrink the window instead; auto-tuning stays", strings.Join(refused, ", "))
		f.Remedy = "in the initial network namespace: " + strings.Join(remedies, "; ")
	}
	l.feature(f)
	return fits
}

// given returns what a socket gets that asks for a buffer of so many bytes, at most those.
func given(option int, want uint32) uint32 {
	if want == 0 {
		return 0
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, int(min(want, math.MaxInt32/2))); err != nil {
		return 0
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return 0
	}
	return min(want, uint32(got)/2)
}

// raise sets a maximum that is too low, written down in the ledger first.
func (l *Loader) raise(name string, need uint32) error {
	if l.o.Ledger == nil {
		return errors.New("there is no ledger to write the change down in")
	}
	old, err := ledger.ReadSysctl(name)
	if err != nil {
		return err
	}
	value := strconv.FormatUint(uint64(need), 10)
	id, err := l.o.Ledger.SetSysctl(name, value)
	if err != nil || id == 0 { // 0: somebody has raised it just now
		return err
	}
	if l.rules.buffers.raised == nil {
		l.rules.buffers.raised = map[string][]uint64{}
		l.onClose(func() error {
			l.applyMu.Lock()
			defer l.applyMu.Unlock()
			return l.lower(rmemMax, wmemMax)
		})
	}
	l.rules.buffers.raised[name] = append(l.rules.buffers.raised[name], id)
	l.log.Info("raised for all of the host", "sysctl", name, "old", old, "new", value)
	return nil
}

// dropRoom gives back what no rule needs any more.
func (l *Loader) dropRoom(t *policy.Table) {
	rcv, snd := neededBuffers(t)
	if rcv == 0 {
		l.lowerLogged(rmemMax)
	}
	if snd == 0 {
		l.lowerLogged(wmemMax)
	}
}

func (l *Loader) lowerLogged(name string) {
	if err := l.lower(name); err != nil {
		l.log.Error("lowering "+name, "err", err)
	}
}

// lower undoes what raise did, unless someone else has changed the value since.
func (l *Loader) lower(names ...string) error {
	var errs []error
	for _, name := range names {
		ids := l.rules.buffers.raised[name]
		if len(ids) == 0 {
			continue
		}
		_, err := l.o.Ledger.UndoOnly(l.log, ids...)
		if err == nil {
			delete(l.rules.buffers.raised, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
