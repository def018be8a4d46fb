// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	kindNetem      = "netem"
	netemLatency64 = 10 // TCA_NETEM_LATENCY64, nanoseconds

	ethernetHeader = 14 // bytes, which netem would count
)

// HaveNetem says why this kernel cannot emulate a link; nil: it can. It tries in a namespace of its own, which needs root.
func HaveNetem() error {
	res := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		res <- tryNetem()
	}()
	return <-res
}

func tryNetem() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("making a network namespace (are you root?): %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	err = setNetem(lo, netemShape{rateBps: 1e6, limit: 10})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel does not have netem: load it with `modprobe sch_netem`, or boot a kernel with CONFIG_NET_SCH_NETEM "+
			"(those of Debian have it, and the machines of `make vmtest`); or use the emulation in-process (%w)", err)
	}
	return err
}

// netemShape is what netem does to packets; it neither loses nor reorders any, but drops those beyond its limit.
type netemShape struct {
	rateBps uint64 // bytes per second of IP packets
	delay   time.Duration
	limit   uint32 // packets, those that wait and those in the delay line together
}

// netem gives what makes netem the shape's rate, delay and queue.
func (s *shape) netem() netemShape {
	bytes := s.rate/8*s.delay().Seconds() + s.queueLimit()
	return netemShape{rateBps: max(uint64(s.rate/8), 1), delay: s.delay(),
		limit: uint32(min(math.Ceil(bytes/float64(s.mtu)), math.MaxUint32))}
}

// setNetem makes netem the queue of a device of the calling thread's namespace, or changes the one that is there.
func setNetem(l netlink.Link, s netemShape) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(l.Attrs().Index), Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kindNetem)))

	options := nl.NewRtAttr(nl.TCA_OPTIONS, (&nl.TcNetemQopt{Limit: s.limit}).Serialize())
	options.AddRtAttr(netemLatency64, nl.Uint64Attr(uint64(s.delay)))
	// The overhead takes the Ethernet header off again, since rates are those of IP packets.
	rate := nl.TcNetemRate{Rate: uint32(min(s.rateBps, math.MaxUint32)), PacketOverhead: -ethernetHeader}
	options.AddRtAttr(nl.TCA_NETEM_RATE, rate.Serialize())
	if s.rateBps > math.MaxUint32 {
		options.AddRtAttr(nl.TCA_NETEM_RATE64, nl.Uint64Attr(s.rateBps))
	}
	req.AddData(options)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("setting netem on %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// netemStats reads what netem sent on, and what it dropped for want of room.
func netemStats(l netlink.Link) (sent, dropped uint64, err error) {
	qdiscs, err := netlink.QdiscList(l)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the statistics of %s: %w", l.Attrs().Name, err)
	}
	for _, q := range qdiscs {
		if st := q.Attrs().Statistics; q.Type() == kindNetem && st != nil && st.Basic != nil && st.Queue != nil {
			return uint64(st.Basic.Packets), uint64(st.Queue.Drops), nil
		}
	}
	return 0, 0, fmt.Errorf("%s has no netem with statistics", l.Attrs().Name)
}
