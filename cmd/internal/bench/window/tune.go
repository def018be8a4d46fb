// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trunkline/trunkline/cmd/internal/bench"
	"github.com/trunkline/trunkline/vmtest/lab"
)

const (
	wanDevice = "wan0" // of the lab's sites
	// profileMaximum is what the six lines set as the largest buffer, where a path does not need more.
	profileMaximum = 64 << 20
	// bufferBDPs is the least that maxima leave room for, in bandwidth-delay products: the kernel advertises half of a buffer, and
	// counts what surrounds the data.
	bufferBDPs = 4
)

// maximum is the largest buffer for a path, by the six lines.
func (c *cell) maximum() int { return max(profileMaximum, bufferBDPs*c.bdp()) }

// chooseCongestion finds out what the kernel has of what the modes want.
func (e *experiment) chooseCongestion() {
	e.stock, e.profile = "cubic", "bbr"
	for _, name := range []*string{&e.stock, &e.profile} {
		if e.offer(*name) {
			continue
		}
		e.note("this kernel has no %s: flows have the host's default congestion control instead", *name)
		*name = ""
	}
}

// offer says whether the kernel has a congestion control, and loads its module where that has it.
func (e *experiment) offer(name string) bool {
	if offers(name) {
		return true
	}
	module := "tcp_" + name
	if bench.LoadModule(module) != nil || !offers(name) {
		return false
	}
	e.modules = append(e.modules, module)
	return true
}

func offers(name string) bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	return err == nil && slices.Contains(strings.Fields(string(b)), name)
}

// unload takes away what was loaded.
func (e *experiment) unload() error {
	var errs []error
	for _, m := range e.modules {
		errs = append(errs, bench.UnloadModule(m))
	}
	return errors.Join(errs...)
}

// tune sets what a mode has beyond a bare kernel, at one site towards the other.
func (w *world) tune(s, other *lab.Site) error {
	return s.Do(func() error {
		if w.mode.profile {
			if err := w.sixLines(); err != nil {
				return err
			}
		}
		if w.mode.route {
			return initialWindows(other.Net4, w.cell.segments())
		}
		return nil
	})
}

// congestion is what the sender gives its sockets. The sysctl of a network namespace takes only what any user may choose, which
// not every kernel lets be cubic.
func (w *world) congestion() string {
	if w.mode.profile {
		return w.e.profile
	}
	return w.e.stock
}

// sixLines are what experts write into a file for long fat paths: net.core.rmem_max and wmem_max, which are the host's and raised
// already, tcp_rmem, tcp_wmem, default_qdisc=fq and tcp_congestion_control=bbr.
func (w *world) sixLines() error {
	most := w.cell.maximum()
	for name, value := range map[string]string{"tcp_rmem": fmt.Sprintf("4096 131072 %d", most), "tcp_wmem": fmt.Sprintf("4096 16384 %d", most)} {
		if err := sysctl(name, value); err != nil {
			return err
		}
	}
	// default_qdisc is the host's and holds for devices that come later: this one gets fq as if it had come later.
	link, err := netlink.LinkByName(wanDevice)
	if err != nil {
		return fmt.Errorf("finding %s: %w", wanDevice, err)
	}
	attrs := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	err = netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "fq"})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		w.noFq = true // TCP paces by itself then
		return nil
	}
	if err != nil {
		return fmt.Errorf("setting fq on %s: %w", wanDevice, err)
	}
	return nil
}

// sysctl writes a setting of the calling thread's network namespace.
func sysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("sysctl net.ipv4.%s: %w", name, err)
	}
	return nil
}

// initialWindows has the route to a network begin with so many segments, in both directions.
func initialWindows(to netip.Prefix, segments int) error {
	dst := &net.IPNet{IP: to.Masked().Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), 32)}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
	if err != nil || len(routes) != 1 {
		return errors.Join(fmt.Errorf("finding the route to %s: there are %d", to, len(routes)), err)
	}
	r := routes[0]
	r.InitCwnd, r.InitRwnd = segments, segments
	if err := netlink.RouteReplace(&r); err != nil {
		return fmt.Errorf("setting initial windows on the route to %s: %w", to, err)
	}
	return nil
}
