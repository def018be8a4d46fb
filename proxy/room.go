// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A block is encoded only when the link asks for more: when less than half of the low-water mark of bytes waits in the
// kernel to be sent for the first time. Until then what the application writes collects in its socket, and is encoded as one
// block. The mark is what the link sends in roomTime, so that encoding the next block has that half of it to be done in.
const (
	roomTime   = 16 * time.Millisecond
	roomLeast  = 32 << 10 // bytes
	roomMost   = 1 << 20
	roomAtOnce = 128 << 10 // before the link's rate is known
	roomTuned  = 100 * time.Millisecond
)

// outqNotSent is SIOCOUTQNSD: how many bytes of a socket the kernel has not sent yet.
const outqNotSent = 0x894b

// room tells when a leg's link asks for more. It belongs to the goroutine that sends the flow's data.
type room struct {
	raw   syscall.RawConn
	mark  int // TCP_NOTSENT_LOWAT in bytes
	tuned time.Time

	counted func(fd uintptr) // made once, as asks
	asks    func(fd uintptr) bool
	poll    [1]unix.PollFd
	since   time.Time // when the link was first found to ask for nothing
	notSent int
}

func newRoom(raw syscall.RawConn) *room {
	r := &room{raw: raw, mark: roomAtOnce}
	r.asks = func(fd uintptr) bool {
		r.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
		if n, err := unix.Poll(r.poll[:], 0); n != 0 || err != nil { // an error is for whoever writes next
			return true
		}
		if r.since.IsZero() {
			r.since = time.Now()
		}
		return false
	}
	r.counted = func(fd uintptr) { r.notSent, _ = unix.IoctlGetInt(int(fd), outqNotSent) }
	return r
}

// await waits until the link asks for more, the leg ends or its deadline passes, and tells how long that took.
func (r *room) await() time.Duration {
	r.since = time.Time{}
	_ = r.raw.Write(r.asks) // the leg's reader tells of its end
	if r.since.IsZero() {
		return 0
	}
	r.tune()
	return time.Since(r.since)
}

// busy tells whether the link has bytes left to send.
func (r *room) busy() bool {
	r.notSent = 0
	_ = r.raw.Control(r.counted) // of a closed leg it does not matter
	return r.notSent > 0
}

// tune sets the mark by the rate at which the link delivers, now and then.
func (r *room) tune() {
	if time.Since(r.tuned) < roomTuned {
		return
	}
	r.tuned = time.Now()
	// An error means that the leg is closed.
	_ = rawControl(r.raw, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		rate := min(info.Delivery_rate, 1<<40) // bytes per second
		mark := min(max(int(rate*uint64(roomTime)/uint64(time.Second)), roomLeast), roomMost)
		if mark > r.mark*3/4 && mark < r.mark*5/4 {
			return nil
		}
		r.mark = mark
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mark)
	})
}
