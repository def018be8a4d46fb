// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/loader/policy"
)

// The bounds of what `window: auto` and `reserved` raise the kernel's tuning to. Buffers are what a flow may take, and not what it
// takes: the kernel tunes them to twice the window, and the window to twice what arrived in a round trip.
const (
	autoMaximum    = 64 << 20  // bytes, without anything known of a path; of 1 Gbit/s it is enough for 250 ms
	autoMaximumCap = 256 << 20 // bytes, whatever was measured
	autoMaximumMin = 8 << 20   // bytes, however little memory there is
	autoMemoryPart = 16        // of the host's memory
	pathWindows    = 4         // of the BDP of a path: the kernel's buffers hold half of that as data, and it looks for twice the window

	reservedWindows    = 2       // receive buffer of a flow in W: what waits to be read must not close the window
	reservedSndWindows = 5       // send buffer in W: the kernel accounts some 2.3 KB for each segment, and holds two windows
	maxReservedWindow  = 1 << 29 // bytes: above, window scaling ends
)

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

// bufferNeeds is what the rules in force ask for, in bytes.
type bufferNeeds struct {
	rcv, snd       uint32 // of buffers that are set
	tcpRcv, tcpSnd uint64 // of buffers that the kernel tunes
}

// needs returns the largest buffers that any rule or reservation asks for.
func (l *Loader) needs(t *policy.Table) bufferNeeds {
	var n bufferNeeds
	var auto, reserved bool
	for _, r := range t.Rules() {
		n.rcv, n.snd = max(n.rcv, r.WindowBytes), max(n.snd, r.SndbufBytes)
		auto = auto || r.Mode() == policy.WindowAuto || r.Mode() == policy.WindowReserved
		reserved = reserved || r.Mode() == policy.WindowReserved
	}
	if auto {
		n.tcpRcv = l.autoMaximum()
		n.tcpSnd = n.tcpRcv
	}
	if reserved {
		for _, r := range l.reserved.inForce {
			n.rcv = max(n.rcv, reservedWindow(r))
			n.tcpSnd = max(n.tcpSnd, min(reservedSndWindows*r.BDPBytes(), math.MaxInt32))
		}
	}
	return n
}

// reservedWindow is the receive buffer of each flow of a reservation.
func reservedWindow(r policy.Reserved) uint32 {
	return uint32(min(max(reservedWindows*r.BDPBytes(), 64<<10), maxReservedWindow))
}

// autoMaximum is what the kernel may tune a buffer to: enough for most paths from the start, and more where a path was measured
// that takes it. A path whose queues are full already asks for nothing.
func (l *Loader) autoMaximum() uint64 {
	most := uint64(autoMaximum)
	paths, err := l.Paths()
	if err != nil {
		paths = nil
	}
	for _, p := range paths {
		if p.SRTTUs <= p.RTTMinUs+p.RTTMinUs/2+5000 {
			most = max(most, pathWindows*p.DeliveredBps*uint64(p.RTTMinUs)/1e6)
		}
	}
	most = min(most, autoMaximumCap) &^ (1<<20 - 1) // in MiB: it is not changed for every sample
	if total := memoryBytes(); total > 0 {
		most = min(most, total/autoMemoryPart)
	}
	return max(most>>l.squeeze, autoMaximumMin)
}

// memoryBytes is the host's memory, 0 where it does not say.
func memoryBytes() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

// makeRoom holds the maxima as high as the rules and reservations need them, says what the kernel then gives, and records the
// feature's state.
func (l *Loader) makeRoom(t *policy.Table) bufferLimits {
	n := l.needs(t)
	for _, m := range []struct {
		sysctl string
		need   uint64
	}{{rmemMax, uint64(n.rcv)}, {wmemMax, uint64(n.snd)}, {tcpRmem, n.tcpRcv}, {tcpWmem, n.tcpSnd}} {
		if err := l.hold(m.sysctl, m.need); err != nil && !l.unraised[m.sysctl] {
			if l.unraised == nil {
				l.unraised = map[string]bool{}
			}
			l.unraised[m.sysctl] = true // once: it is tried every second
			l.log.Warn("cannot raise "+m.sysctl, "err", err)
		}
	}
	fits := bufferLimits{rcv: given(unix.SO_RCVBUF, n.rcv), snd: given(unix.SO_SNDBUF, n.snd)}
	l.feature(l.windowFeature(t, n, fits))
	return fits
}

func (l *Loader) windowFeature(t *policy.Table, n bufferNeeds, fits bufferLimits) Feature {
	f := Feature{Name: "window", On: true, Detail: "no rule asks for a fixed window"}
	if n.rcv > 0 || n.snd > 0 {
		f.Detail = "fixed windows are set"
	}
	if n.tcpRcv > 0 {
		f.Detail = fmt.Sprintf("the kernel may tune buffers up to %d MiB", n.tcpRcv>>20)
	}
	if k := len(l.reserved.inForce); k > 0 {
		f.Detail += fmt.Sprintf("; reserved paths in force: %d", k)
	}
	if l.squeeze > 0 {
		f.Detail += fmt.Sprintf("; windows are 1/%d for want of memory (%s)", 1<<l.squeeze, l.pressure.why)
	}
	if names := slices.Sorted(slices.Values(keys(l.rules.buffers.raised))); len(names) > 0 {
		f.Detail += "; raised for all of the host: " + strings.Join(names, ", ")
	}
	var refused, remedies []string
	for _, r := range t.Rules() {
		if fits.window(r) != r.WindowBytes || fits.sndbuf(r) != r.SndbufBytes {
			refused = append(refused, r.Label())
		}
	}
	for _, r := range l.reserved.inForce {
		if reservedWindow(r) > fits.rcv && n.rcv > 0 {
			refused = append(refused, "reservation "+r.ID)
		}
	}
	if n.rcv > fits.rcv {
		remedies = append(remedies, fmt.Sprintf("sysctl -w %s=%d", rmemMax, n.rcv))
	}
	if n.snd > fits.snd {
		remedies = append(remedies, fmt.Sprintf("sysctl -w %s=%d", wmemMax, n.snd))
	}
	if len(refused) > 0 {
		f.On = false
		f.Detail = fmt.Sprintf("refused for %s: the host's maximum would shrink the window instead; auto-tuning stays", strings.Join(refused, ", "))
		f.Remedy = "in the initial network namespace: " + strings.Join(remedies, "; ")
	}
	return f
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

// readNumbers returns the numbers in a file's first line of words.
func readNumbers(path string) []uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []uint64
	for _, w := range strings.Fields(string(b)) {
		if v, err := strconv.ParseUint(w, 10, 64); err == nil {
			out = append(out, v)
		}
	}
	return out
}
