// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// vnetHeader is the length of struct virtio_net_hdr (TUN's default), which precedes each packet: it carries the segment size of a
// super-packet and where its unfinished checksum goes.
const vnetHeader = 10

// openTUN makes a TUN device in the calling thread's network namespace. Unfinished checksums, and with super super-packets
// of up to 64 KiB, pass as they are, which is what lets a user-space link carry a gigabit.
func openTUN(name string, super bool) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making TUN device %s: %w", name, err)
	}
	offloads := unix.TUN_F_CSUM
	if super {
		offloads |= unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("offloads of TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
